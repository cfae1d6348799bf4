// How much memory a call takes beyond what its caller gave it.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

namespace saccade::measure {

/// The growth of this process's resident memory at its peak during `call`, in bytes; nothing when the system
/// does not tell. What the heap held free is handed back first, so that reused memory counts too.
[[nodiscard]] std::optional<std::size_t> peak_growth(const std::function<void()>& call);

}  // namespace saccade::measure
