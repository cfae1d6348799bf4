// Plans by problem and device, so that a call of a known shape plans nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <saccade/saccade.h>

namespace saccade_torch {

/// Everything a plan depends on. Compared and hashed as bytes: start from a zeroed one.
struct PlanKey {
  saccade_problem problem;
  std::int32_t device_kind;
  std::int32_t device_index;
  std::int32_t threads;            ///< CPU threads; torch.set_num_threads() may change them between calls.
  std::int32_t pointer_alignment;  ///< of q, k and v; views may begin anywhere.
};

struct Plan {
  explicit Plan(const PlanKey& key);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  saccade_plan* plan = nullptr;
  std::size_t workspace_bytes = 0;
  bool slow = false;  ///< the kernel that serves on CUDA where none does that is made for speed
};

/// Plans that are kept. A decoding loop makes a new length a token, so the number must have a bound; when it
/// is reached all are dropped, which costs a few microseconds a shape once and keeps lookups free of
/// bookkeeping.
inline constexpr std::size_t kMaxPlans = 4096;

/// The plan of this key, made on its first use; throws the planner's sentence. It lives until this thread
/// asks again. Any number of threads may call; one that repeats its latest problem takes no lock.
[[nodiscard]] const Plan& find_plan(const PlanKey& key);

/// How many plans are kept now.
[[nodiscard]] std::size_t plan_count();

}  // namespace saccade_torch
