#include "plan_cache.h"

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace saccade_torch {
namespace {

static_assert(std::is_trivially_copyable_v<PlanKey>);
// Bytes can be compared only where no padding hides between the fields.
static_assert(sizeof(saccade_problem) % sizeof(std::int64_t) == 0);
static_assert(sizeof(PlanKey) == sizeof(saccade_problem) + 16);

struct SameBytes {
  bool operator()(const PlanKey& a, const PlanKey& b) const {
    return std::memcmp(&a, &b, sizeof(PlanKey)) == 0;
  }
};

struct HashBytes {
  std::size_t operator()(const PlanKey& key) const {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&key), sizeof(PlanKey)});
  }
};

struct Cache {
  std::shared_mutex mutex;
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, HashBytes, SameBytes> plans;
};

/// Never destroyed: plans of the GPU must not be released after the CUDA runtime at the end of the process.
Cache& cache() {
  static auto* const kCache = new Cache;
  return *kCache;
}

std::shared_ptr<const Plan> look_up(const PlanKey& key) {
  Cache& shared = cache();
  {
    const std::shared_lock lock(shared.mutex);
    if (const auto found = shared.plans.find(key); found != shared.plans.end()) return found->second;
  }
  auto made = std::make_shared<const Plan>(key);
  const std::unique_lock lock(shared.mutex);
  if (shared.plans.size() >= kMaxPlans) shared.plans.clear();
  return shared.plans.emplace(key, std::move(made)).first->second;
}

}  // namespace

Plan::Plan(const PlanKey& key) {
  saccade_options options{};
  options.struct_size = sizeof options;
  options.device_kind = key.device_kind;
  options.device_index = key.device_index;
  options.threads = key.threads;
  options.pointer_alignment = key.pointer_alignment;
  options.trusted_pointers = 1;  // torch's tensors know where they lie, and the outputs are new
  if (saccade_plan_create(&key.problem, &options, &plan) != SACCADE_OK)
    throw std::runtime_error(saccade_last_error());
  workspace_bytes = saccade_plan_workspace_bytes(plan);
  slow = std::string_view(saccade_plan_kernel(plan)) == "cuda_reference";
}

Plan::~Plan() {
  saccade_plan_destroy(plan);
}

const Plan& find_plan(const PlanKey& key) {
  struct Latest {
    PlanKey key;
    std::shared_ptr<const Plan> plan;
  };
  thread_local Latest latest;
  if (latest.plan == nullptr || !SameBytes{}(latest.key, key)) {
    latest.plan = look_up(key);
    latest.key = key;
  }
  return *latest.plan;
}

std::size_t plan_count() {
  const std::shared_lock lock(cache().mutex);
  return cache().plans.size();
}

}  // namespace saccade_torch
