#include "verify/mirror.h"

#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "core/operands.h"
#include "cuda/launch/runtime.h"
#include "verify/guarded_buffer.h"

namespace saccade {
namespace {

constexpr std::size_t kBand = GuardedBuffer::kBandBytes;
constexpr std::size_t kAlignment = 256;

/// Host bytes and their image on the GPU.
class Image {
 public:
  Image(std::string_view name, std::byte* host, std::size_t bytes) : name_(name), host_(host), bytes_(bytes) {
    // The same address modulo the alignment: what is misaligned on the host must be so on the GPU.
    before_ = kBand + reinterpret_cast<std::uintptr_t>(host) % kAlignment;
    image_.resize(before_ + bytes + kBand);
    fill_pattern(image_, kGuardPattern);
    if (host != nullptr) std::memcpy(image_.data() + before_, host, bytes);
  }

  Status upload() {
    Result<device::Memory> memory = device::Memory::allocate(image_.size());
    if (!memory.ok()) return memory.status();
    memory_ = std::move(memory).value();
    return memory_.from_host(image_);
  }
  /// Where the host's first byte is on the GPU.
  [[nodiscard]] std::byte* data() const { return memory_.data() + before_; }

  /// Fetches the image; an error when a band has changed, or, with `constant`, anything has.
  Status download(bool constant) {
    std::vector<std::byte> now(image_.size());
    if (Status status = memory_.to_host(now); !status.ok()) return status;
    const std::size_t after = before_ + bytes_;
    const bool bands = std::memcmp(now.data(), image_.data(), before_) == 0 &&
                       std::memcmp(now.data() + after, image_.data() + after, kBand) == 0;
    if (!bands) return {Code::internal, fmt::format("memory around {} was written", name_)};
    if (!constant && host_ != nullptr) std::memcpy(host_, now.data() + before_, bytes_);
    if (constant && std::memcmp(now.data() + before_, image_.data() + before_, bytes_) != 0) {
      return {Code::internal, fmt::format("the input {} was written", name_)};
    }
    return {};
  }

 private:
  std::string_view name_;
  std::byte* host_;
  std::size_t bytes_, before_ = 0;
  std::vector<std::byte> image_;
  device::Memory memory_;
};

/// All images of one call, and the tensors that point at them.
class Mirror {
 public:
  Mirror(const Problem& p, const Tensors& host) : tensors_(host) {
    const auto add = [this](const Operands& operands, std::vector<Image>& images) {
      for (const Operand& operand : operands) {
        const Bounds range = bounds(operand.extent).value();  // validate() has made sure that there are some
        // Outputs are written through their own pointers; that these are const here is the list's
        // convenience.
        auto* first = const_cast<std::byte*>(static_cast<const std::byte*>(operand.data)) + range.begin;
        if (operand.data == nullptr || operand.extent.empty()) continue;
        images.emplace_back(operand.name, first, static_cast<std::size_t>(range.end - range.begin));
        moves_.push_back({operand.data, &images, images.size() - 1, range.begin});
      }
    };
    add(inputs(p, host), inputs_);
    add(outputs(p, host), outputs_);
  }

  Status upload() {
    for (auto* images : {&inputs_, &outputs_}) {
      for (Image& image : *images) {
        if (Status status = image.upload(); !status.ok()) return status;
      }
    }
    const auto move = [this](auto& pointer) {
      for (const Move& m : moves_) {
        if (pointer != m.host) continue;
        std::byte* const first = (*m.images)[m.index].data() - m.begin;
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(first);
        return;
      }
      pointer = nullptr;  // empty, or not part of the problem
    };
    move(tensors_.q);
    move(tensors_.k);
    move(tensors_.v);
    move(tensors_.o);
    move(tensors_.lse);
    move(tensors_.mask);
    move(tensors_.alibi_slopes);
    move(tensors_.sinks);
    move(tensors_.cu_seqlens_q);
    move(tensors_.cu_seqlens_kv);
    move(tensors_.kv_lengths);
    move(tensors_.block_table);
    return {};
  }
  [[nodiscard]] const Tensors& tensors() const { return tensors_; }

  Status download() {
    for (Image& image : outputs_) {
      if (Status status = image.download(false); !status.ok()) return status;
    }
    for (Image& image : inputs_) {
      if (Status status = image.download(true); !status.ok()) return status;
    }
    return {};
  }

 private:
  struct Move {
    const void* host;
    std::vector<Image>* images;
    std::size_t index;
    std::int64_t begin;
  };
  Tensors tensors_;
  std::vector<Image> inputs_, outputs_;
  std::vector<Move> moves_;
};

}  // namespace

Status run_mirrored(const Plan& plan, const Tensors& host) {
  const device::Guard guard(plan.device().index);
  if (!guard.status().ok()) return guard.status();
  Mirror mirror(plan.problem(), host);
  if (Status status = mirror.upload(); !status.ok()) return status;
  Image workspace("the workspace", nullptr, plan.workspace_bytes());
  if (Status status = workspace.upload(); !status.ok()) return status;
  if (Status status = run(plan, mirror.tensors(), {workspace.data(), plan.workspace_bytes()}); !status.ok()) {
    return status;
  }
  if (Status status = device::synchronize(); !status.ok()) return status;
  if (Status status = workspace.download(false); !status.ok()) return status;
  return mirror.download();
}

}  // namespace saccade
