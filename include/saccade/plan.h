// Planning: which kernel serves a problem on a device, with which configuration, and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <saccade/export.h>
#include <saccade/problem.h>
#include <saccade/status.h>

namespace saccade {

/// Where a kernel runs.
enum class DeviceKind : std::uint8_t { cpu, cuda };

/// A device by kind and index; {cpu, 0} is the host.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0".
[[nodiscard]] SACCADE_API std::string to_string(Device device);

/// What the caller may decide instead of the planner.
struct PlanOptions {
  Device device{};
  std::string kernel{};  ///< A registry name to insist on; empty: the first that accepts.
  std::string config{};  ///< Kernel settings as "key=value ..."; what is not named is chosen by the kernel.
  int threads = 0;       ///< CPU threads at most; 0: all that OpenMP would use.
  /// What the addresses of q, k, v and o of every run are multiples of, in bytes: a power of two. The fastest
  /// GPU kernels move 16 bytes at a time and say no to less; who runs on views that begin anywhere says so
  /// here.
  int pointer_alignment = 16;
  /// The caller vouches for the pointers of every run: those of tensors that have elements lie on the device,
  /// are aligned to their elements, and no output overlaps anything. run() then does not look, which saves
  /// microseconds a call on a GPU. For frameworks whose tensors know all this.
  bool trusted_pointers = false;
};

namespace detail {
struct PlanState;
}

/// A decision, ready to run any number of times, from any number of threads. Cheap to copy.
class Plan {
 public:
  /// The problem this plan was made for.
  [[nodiscard]] SACCADE_API const Problem& problem() const noexcept;
  /// The device it runs on.
  [[nodiscard]] SACCADE_API Device device() const noexcept;
  /// The chosen kernel's registry name.
  [[nodiscard]] SACCADE_API std::string_view kernel() const noexcept;
  /// The chosen configuration, as "key=value ..."; PlanOptions::config takes it back.
  [[nodiscard]] SACCADE_API const std::string& config() const noexcept;
  /// Bytes of scratch memory run() needs, aligned to kWorkspaceAlignment; may be 0.
  [[nodiscard]] SACCADE_API std::size_t workspace_bytes() const noexcept;
  /// Which kernel, with which configuration, and why every faster one said no. Several lines.
  [[nodiscard]] SACCADE_API std::string explain() const;

 private:
  friend struct detail::PlanState;
  explicit Plan(std::shared_ptr<const detail::PlanState> state) : state_(std::move(state)) {}
  std::shared_ptr<const detail::PlanState> state_;
};

/// The alignment run() asks of the workspace.
inline constexpr std::size_t kWorkspaceAlignment = 256;

/// Validates the problem and walks the registry, fastest kernel first, until one accepts.
[[nodiscard]] SACCADE_API Result<Plan> make_plan(const Problem& problem, const PlanOptions& options = {});

/// One row of the registry, for listings.
struct KernelInfo {
  std::string_view name;
  std::string_view summary;
  DeviceKind device;
};

/// Every kernel of this build in the planner's order.
[[nodiscard]] SACCADE_API std::vector<KernelInfo> kernels();

}  // namespace saccade
