# Writes the commit that is being built into a header, and touches it only when it changed.
set(commit "")
set(dirty false)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # Without optional locks: a build must not disturb a git command that runs beside it.
  execute_process(COMMAND ${GIT} --no-optional-locks status --porcelain WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#pragma once
inline constexpr char kBuildCommit[] = "@commit@";
inline constexpr bool kBuildDirty = @dirty@;
]])
