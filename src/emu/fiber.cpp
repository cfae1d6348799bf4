#include "emu/fiber.h"

#include <memory>
#include <new>
#include <sys/mman.h>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define SACCADE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SACCADE_ASAN 1
#endif
#endif
#ifdef SACCADE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace saccade::emu {
namespace {

void about_to_switch([[maybe_unused]] void** save, [[maybe_unused]] const void* stack,
                     [[maybe_unused]] std::size_t bytes) {
#ifdef SACCADE_ASAN
  __sanitizer_start_switch_fiber(save, stack, bytes);
#endif
}

void switched([[maybe_unused]] void* saved, [[maybe_unused]] const void** from_stack,
              [[maybe_unused]] std::size_t* from_bytes) {
#ifdef SACCADE_ASAN
  __sanitizer_finish_switch_fiber(saved, from_stack, from_bytes);
#endif
}

constexpr std::size_t kGuardBytes = 4096;

/// Stacks with a forbidden page below them, kept for the next block of the same core.
class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool() {
    for (void* mapping : free_) munmap(mapping, kGuardBytes + kStackBytes);
  }
  void* take() {
    if (!free_.empty()) {
      void* mapping = free_.back();
      free_.pop_back();
      return mapping;
    }
    void* mapping =
        mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) throw std::bad_alloc();
    mprotect(mapping, kGuardBytes, PROT_NONE);
    return mapping;
  }
  void give(void* mapping) {
#ifdef SACCADE_ASAN  // frames that were never left cleanly have marks, and the memory's next owner would trip
                     // over them
    __asan_unpoison_memory_region(static_cast<char*>(mapping) + kGuardBytes, kStackBytes);
#endif
    free_.push_back(mapping);
  }

 private:
  std::vector<void*> free_;
};

/// The pool as Boost.Context wants to see it.
struct PooledStack {
  StackPool* pool;
  boost::context::stack_context allocate() {
    boost::context::stack_context context;
    context.size = kStackBytes;
    context.sp = static_cast<char*>(pool->take()) + kGuardBytes + kStackBytes;
    return context;
  }
  void deallocate(boost::context::stack_context& context) noexcept {
    pool->give(static_cast<char*>(context.sp) - kStackBytes - kGuardBytes);
  }
};

StackPool& this_pool() {
  thread_local StackPool pool;
  return pool;
}

}  // namespace

Fiber::Fiber(std::function<void()> main) {
  PooledStack stack{&this_pool()};
  boost::context::stack_context memory = stack.allocate();
  stack_ = static_cast<char*>(memory.sp) - kStackBytes;
  context_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(memory.sp, memory.size, memory),
                            stack, [this, main = std::move(main)](boost::context::fiber&& caller) {
                              switched(nullptr, &caller_stack_, &caller_stack_bytes_);
                              caller_ = std::move(caller);
                              struct Leave {  // at the end, and when it is unwound
                                Fiber& fiber;
                                ~Leave() {
                                  about_to_switch(nullptr, fiber.caller_stack_, fiber.caller_stack_bytes_);
                                }
                              } leave{*this};
                              main();
                              return std::move(caller_);
                            });
}

Fiber::~Fiber() {
  if (!context_ || !started_) return;
  void* saved = nullptr;
  about_to_switch(&saved, stack_, kStackBytes);
  context_ = {};  // makes suspend() throw
  switched(saved, nullptr, nullptr);
}

void Fiber::resume() {
  started_ = true;
  void* saved = nullptr;
  about_to_switch(&saved, stack_, kStackBytes);
  context_ = std::move(context_).resume();
  switched(saved, nullptr, nullptr);
}

void Fiber::suspend() {
  void* saved = nullptr;
  about_to_switch(&saved, caller_stack_, caller_stack_bytes_);
  // Whoever destroys a suspended fiber makes resume() throw, so that its stack unwinds.
  struct Arrive {
    void*& saved;
    Fiber& fiber;
    ~Arrive() { switched(saved, &fiber.caller_stack_, &fiber.caller_stack_bytes_); }
  } arrive{saved, *this};
  caller_ = std::move(caller_).resume();
}

}  // namespace saccade::emu
