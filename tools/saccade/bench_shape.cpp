#include "bench_shape.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <new>
#include <omp.h>
#include <span>

#include "command.h"
#include "console.h"
#include "core/operands.h"
#include "cuda/ceilings/ceilings.h"
#include "cuda/launch/runtime.h"
#include "measure/ceilings.h"
#include "measure/memory.h"
#include "verify/case_data.h"
#include "verify/mirror.h"

namespace saccade::cli {
namespace {

constexpr double kBandwidthSeconds = 0.1;
constexpr double kShortestProbeSeconds = 0.003;

/// Workspace memory, touched, so that its pages count as the caller's.
class WorkspaceMemory {
 public:
  explicit WorkspaceMemory(std::size_t bytes)
      : bytes_(bytes), data_(::operator new(bytes, kAlign), Delete{}) {
    std::memset(data_.get(), 0, bytes);
  }
  [[nodiscard]] Workspace view() const { return {data_.get(), bytes_}; }

 private:
  static constexpr std::align_val_t kAlign{kWorkspaceAlignment};
  struct Delete {
    void operator()(void* data) const { ::operator delete(data, kAlign); }
  };
  std::size_t bytes_;
  std::unique_ptr<void, Delete> data_;
};

/// Seeds that are multiples of CaseData::kNanEvery put NaNs into the inputs; times should not come from
/// those.
std::uint64_t finite_seed(std::uint64_t seed) {
  return seed % CaseData::kNanEvery == 0 ? seed + 1 : seed;
}

void run_once(const Plan& plan, const Tensors& tensors, Workspace workspace) {
  if (const Status status = run(plan, tensors, workspace); !status.ok()) throw CommandError(status);
}

/// Seconds of one call, guessed from a part of the problem that takes `enough_seconds`: one group of heads
/// and as many query rows as that needs. Nothing when the kernel does not take such a part.
std::optional<double> estimate_seconds(const Problem& problem, const KernelChoice& kernel, int threads,
                                       double enough_seconds) {
  constexpr std::int64_t kMostRows = 1024, kMostKeys = 4096;
  Problem part = problem;
  part.batch = std::min<std::int64_t>(problem.batch, 1);
  part.heads_q = problem.group();
  part.heads_kv = std::min<std::int64_t>(problem.heads_kv, 1);
  part.len_q = std::min(problem.len_q, kMostRows);
  part.len_kv = std::min(problem.len_kv, kMostKeys);
  part.mask = MaskKind::none;
  part.ragged_q = part.kv_lengths = part.causal = false;
  part.kv_layout = KvLayout::dense;
  part.pack();
  if (!validate(part).ok() || flops(part) <= 0) return std::nullopt;
  const CaseData data(part, 1);
  std::optional<double> guess;
  for (std::int64_t rows = std::min<std::int64_t>(part.len_q, 8);; rows = std::min(4 * rows, part.len_q)) {
    Problem now = part;  // the first rows of each head: same strides, fewer of them
    now.len_q = rows;
    const Planned planned = try_plan(now, kernel, threads);
    if (planned.plan.empty()) return guess;
    const WorkspaceMemory workspace(planned.plan[0].workspace_bytes());
    // The least of three: the first call starts threads, and a busy machine takes whole time slices away.
    const measure::TimedCalls time =
        measure::host_timer([&] { run_once(planned.plan[0], data.tensors(), workspace.view()); });
    const double seconds = std::min({time(1), time(1), time(1)});
    guess = seconds * flops(problem) / flops(now);
    if (seconds > enough_seconds || rows == part.len_q) return guess;
  }
}

/// All bytes from the first to the last of K and of V.
std::array<std::span<const std::byte>, 2> keys_and_values(const Problem& problem, const Tensors& tensors) {
  std::array<std::span<const std::byte>, 2> found;
  for (const Operand& operand : inputs(problem, tensors)) {
    if (operand.name != "k" && operand.name != "v") continue;
    if (operand.extent.empty()) continue;
    const Bounds bytes = bounds(operand.extent).value_or(Bounds{});
    const auto* base = static_cast<const std::byte*>(operand.data);
    found[operand.name == "v" ? 1 : 0] = {base + bytes.begin,
                                          static_cast<std::size_t>(bytes.end - bytes.begin)};
  }
  return found;
}

/// What a call gave, or the end of the command.
template <class T>
T expect(Result<T> result) {
  if (!result.ok()) throw CommandError(result.status());
  return std::move(result).value();
}
void expect(const Status& status) {
  if (!status.ok()) throw CommandError(status);
}

/// Device time by replays of a CUDA graph of ten calls. Fewer calls than that are a part of one replay.
measure::TimedCalls device_timer(const std::function<Status(Stream)>& enqueue) {
  const device::CallGraph graph = expect(device::CallGraph::capture(enqueue));
  return [graph](int calls) {
    constexpr int kCalls = device::CallGraph::kCallsPerGraph;
    const int times = (calls + kCalls - 1) / kCalls;
    return expect(graph.replay(times)) / (times * kCalls) * calls;
  };
}

std::string why_failed(const Verdict& verdict) {
  const Failure& failure = verdict.failures.front();
  return fmt::format("failed verification: {}: {}", to_string(failure.check), failure.detail);
}

}  // namespace

/// A kernel that will be timed.
struct Bench::Work {
  KernelChoice kernel;
  Plan plan;
  std::unique_ptr<WorkspaceMemory> workspace;
  std::size_t result;  ///< index in ShapeResult::kernels
};

Bench::Bench(BenchOptions options)
    : options_(std::move(options)),
      device_(options_.kernels.empty() ? Device{} : options_.kernels.front().device),
      threads_(options_.threads > 0 ? options_.threads : omp_get_max_threads()) {
  for (const KernelChoice& kernel : options_.kernels) {
    if (kernel.device == device_) continue;
    throw CommandError(kBadInput, fmt::format("kernels of one device are compared: {} runs on {}, {} on {}",
                                              options_.kernels.front().name, to_string(device_), kernel.name,
                                              to_string(kernel.device)));
  }
  if (device_.kind == DeviceKind::cuda) {
    if (options_.cold) throw CommandError(kBadInput, "--cold is for the CPU's caches");
    measure_gpu_ceilings();
    return;
  }
  if (options_.cold) evictor_ = std::make_shared<measure::CacheEvictor>();
  // A short benchmark should not wait long for its ceilings.
  const int runs = std::clamp(static_cast<int>(2 * options_.budget_seconds), 1, 5);
  fma_flops_per_second_ = measure::measure_fma(threads_, runs).flops_per_second;
  const std::size_t beyond_caches = std::max(2 * measure::largest_cache_bytes(), std::size_t{256} << 20);
  copy_bytes_per_second_ = measure::measure_copy({.bytes = beyond_caches,
                                                  .threads = threads_,
                                                  .budget_seconds = std::min(options_.budget_seconds, 0.3)});
}

void Bench::measure_gpu_ceilings() {
  const device::Guard guard(device_.index);
  expect(guard.status());
  constexpr int kRuns = 5;
  const auto best_rate = [](const device::Probe& probe) {
    const measure::TimedCalls time = device_timer(probe.enqueue);
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < kRuns; ++run) best = std::min(best, time(1));
    return probe.work_per_call / best;
  };
  fma_flops_per_second_ = best_rate(expect(device::matrix_probe(device_.index, kShortestProbeSeconds)));
  constexpr std::size_t kBeyondCaches = std::size_t{1} << 30;
  const device::Memory memory = expect(device::Memory::allocate(kBeyondCaches));
  const std::array<std::span<const std::byte>, 1> parts = {
      std::span<const std::byte>(memory.data(), memory.bytes())};
  copy_bytes_per_second_ = best_rate(expect(device::read_probe(device_.index, parts)));
}

KernelResult Bench::prepare(const Problem& problem, const KernelChoice& kernel, std::vector<Work>& work,
                            const Report& report) const {
  KernelResult result;
  result.kernel = kernel.label();
  Planned planned = try_plan(problem, kernel, options_.threads);
  if (planned.plan.empty()) {
    result.not_timed = planned.rejection;
    result.rejected = true;
    return result;
  }
  const Plan& plan = planned.plan.front();
  result.config = plan.config();
  result.workspace_bytes = plan.workspace_bytes();

  // Nothing is as slow as this many operations a second, so most shapes need no guess.
  constexpr double kSlowest = 2e8;
  const double longest = options_.budget_seconds / 3;  // three samples are the fewest that say anything
  if (device_.kind == DeviceKind::cpu && flops(problem) > kSlowest * longest) {
    report(fmt::format("estimating {}", result.kernel));
    const std::optional<double> guess = estimate_seconds(problem, kernel, options_.threads, longest / 8);
    if (guess && *guess > longest) {
      result.not_timed =
          fmt::format("skipped: a call would take about {}, more than a third of the budget of {}",
                      format_seconds(*guess), format_seconds(options_.budget_seconds));
      return result;
    }
  }
  const std::size_t on_host = device_.kind == DeviceKind::cpu ? plan.workspace_bytes() : 0;
  work.push_back({kernel, plan, std::make_unique<WorkspaceMemory>(on_host), 0});
  return result;
}

void Bench::verify(const Problem& problem, std::vector<Work>& work, ShapeResult& result) const {
  const VerifyOptions how{.seed = finite_seed(options_.seed), .max_rows = options_.verify_rows};
  std::vector<NamedRunner> runners;
  for (const Work& each : work) {
    runners.push_back({each.kernel.quoted_label(), kernel_runner(each.kernel.options(options_.threads))});
  }
  std::vector<Verdict> verdicts = verify_each(problem, runners, how);
  for (std::size_t i = 0; i < work.size(); ++i) {
    KernelResult& kernel = result.kernels[work[i].result];
    kernel.verified = std::move(verdicts[i]);
    if (kernel.verified->passed()) continue;
    kernel.not_timed = why_failed(*kernel.verified);
    kernel.repro = repro_command(problem, work[i].kernel, how);
  }
  std::erase_if(work, [&](const Work& each) { return result.kernels[each.result].failed(); });
}

void Bench::time(const Problem& problem, std::vector<Work>& work, ShapeResult& result) const {
  CaseData data(problem, finite_seed(options_.seed));
  data.poison();  // touches the outputs
  std::vector<measure::Candidate> candidates;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Work& each : work) {
    const auto call = [&data, &each] { run_once(each.plan, data.tensors(), each.workspace->view()); };
    call();  // threads and code exist from here on; what grows now is the call's own
    result.kernels[each.result].grown_bytes = measure::peak_growth(call);
    candidates.push_back({result.kernels[each.result].kernel, measure::host_timer(call)});
    fastest = std::min(fastest, candidates.back().time(1));
  }
  // The ceilings take part in the rounds, so that they see the same machine as the kernels.
  measure::BandwidthOptions reading{.threads = threads_, .budget_seconds = kBandwidthSeconds};
  if (evictor_) reading.before_repetition = [this] { (*evictor_)(); };
  const measure::Probe read = measure::read_probe(keys_and_values(problem, data.tensors()), reading);
  const measure::Probe fma = measure::fma_probe(threads_, std::max(fastest, kShortestProbeSeconds));
  candidates.push_back({"read ceiling", read.time});
  candidates.push_back({"FMA ceiling", fma.time});
  sample(work, candidates, {read.work_per_call, fma.work_per_call}, result);
}

void Bench::time_on_gpu(const Problem& problem, std::vector<Work>& work, ShapeResult& result) const {
  const device::Guard guard(device_.index);
  expect(guard.status());
  CaseData data(problem, finite_seed(options_.seed));
  data.poison();
  Mirror mirror(problem, data.tensors());
  expect(mirror.upload());
  std::vector<device::Memory> workspaces;  // stay until the last replay
  std::vector<measure::Candidate> candidates;
  double fastest = std::numeric_limits<double>::infinity();
  for (const Work& each : work) {
    const device::Memory& memory =
        workspaces.emplace_back(expect(device::Memory::allocate(each.plan.workspace_bytes())));
    const Workspace workspace{memory.data(), memory.bytes()};
    const auto enqueue = [&mirror, &each, workspace](Stream stream) {
      return saccade::run(each.plan, mirror.tensors(), workspace, stream);
    };
    expect(enqueue(nullptr));  // loads the code, which a graph could not
    expect(device::synchronize());
    candidates.push_back({result.kernels[each.result].kernel, device_timer(enqueue)});
    fastest = std::min(fastest, candidates.back().time(1));
  }
  const device::Probe read =
      expect(device::read_probe(device_.index, keys_and_values(problem, mirror.tensors())));
  const device::Probe matrix =
      expect(device::matrix_probe(device_.index, std::max(fastest, kShortestProbeSeconds)));
  candidates.push_back({"read ceiling", device_timer(read.enqueue)});
  candidates.push_back({"matrix ceiling", device_timer(matrix.enqueue)});
  sample(work, candidates, {read.work_per_call, matrix.work_per_call}, result);
}

void Bench::sample(const std::vector<Work>& work, const std::vector<measure::Candidate>& candidates,
                   const std::array<double, 2>& ceiling_work, ShapeResult& result) const {
  measure::SamplerOptions how;
  how.seed = options_.seed;
  how.budget_seconds = options_.budget_seconds;
  if (evictor_) how.before_sample = [this] { (*evictor_)(); };
  std::vector<measure::Samples> samples = measure::sample(candidates, how);
  for (std::size_t i = 0; i < work.size(); ++i) {
    KernelResult& kernel = result.kernels[work[i].result];
    kernel.samples = std::move(samples[i]);
    kernel.seconds = measure::summarize(kernel.samples.seconds, options_.seed);
  }
  result.read_bytes_per_second = ceiling_work[0] / measure::median(samples[work.size()].seconds);
  result.fma_flops_per_second = ceiling_work[1] / measure::median(samples[work.size() + 1].seconds);
}

void Bench::compare(ShapeResult& result) const {
  const auto is_baseline = [&](const KernelResult& kernel) {
    return kernel.timed() && (options_.baseline.empty() || kernel.kernel == options_.baseline);
  };
  const auto timed = std::ranges::count_if(result.kernels, &KernelResult::timed);
  const auto found = std::ranges::find_if(result.kernels.rbegin(), result.kernels.rend(), is_baseline);
  if (timed < 2 || found == result.kernels.rend()) return;
  result.baseline = found->kernel;
  const KernelResult* const baseline = &*found;
  for (KernelResult& kernel : result.kernels) {
    if (!kernel.timed() || &kernel == baseline) continue;
    kernel.speedup = measure::speedup(kernel.samples.seconds, baseline->samples.seconds, options_.seed);
  }
}

ShapeResult Bench::run(const Case& each, const Report& report) {
  ShapeResult result;
  result.of = each;
  result.device = device_;
  result.threads = threads_;
  result.cold = options_.cold;
  if (const Result<Plan> plan = make_plan(each.problem, {.device = device_, .threads = threads_}); plan.ok())
    result.chosen = plan->kernel();
  std::vector<Work> work;
  for (const KernelChoice& kernel : options_.kernels) {
    const std::size_t before = work.size();
    KernelResult prepared = prepare(each.problem, kernel, work, report);
    if (work.size() > before) work.back().result = result.kernels.size();
    result.kernels.push_back(std::move(prepared));
  }
  if (options_.verify && !work.empty()) {
    report("verifying");
    verify(each.problem, work, result);
  }
  if (work.empty()) return result;
  report("timing");
  if (device_.kind == DeviceKind::cuda) {
    time_on_gpu(each.problem, work, result);
  } else {
    time(each.problem, work, result);
  }
  compare(result);
  return result;
}

}  // namespace saccade::cli
