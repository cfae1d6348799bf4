// What the commands that look into a kernel share.
#pragma once

#include <string>

#include <saccade/plan.h>
#include <saccade/problem.h>

#include "commands.h"
#include "cuda_driver.h"

namespace saccade::cli {

/// The selection's only problem; anything else ends the command.
[[nodiscard]] Problem one_problem(const CaseSelection& cases, std::string_view command);

/// How "NAME" or "NAME:settings" is planned on the GPU.
[[nodiscard]] PlanOptions cuda_plan(const std::string& kernel);

/// The first CUDA device. Ends the command with 3 when there is none, or when this build has no kernels for
/// it.
[[nodiscard]] CudaDevice require_gpu();

/// The program's file; ends the command with 3 and `purpose` when it is not installed.
[[nodiscard]] std::string require_program(const std::string& name, std::string_view purpose);

/// The emulator's counters and the model of a chip.
[[nodiscard]] int profile_emulated(const Problem& problem, const ProfileOptions& options,
                                   const Globals& globals);

/// Nsight Compute on the GPU.
[[nodiscard]] int profile_nsight(const Problem& problem, const ProfileOptions& options,
                                 const Globals& globals);

}  // namespace saccade::cli
