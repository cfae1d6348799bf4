// run() allocates nothing: malloc itself is replaced by one that counts, so that neither `new` nor C code nor
// a library can allocate unseen.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <gtest/gtest.h>

#include "one_call.h"

namespace {
std::atomic<long> allocations = 0;
}

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, std::size_t bytes) {
  ++allocations;
  return __libc_realloc(data, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) {
  *data = memalign(alignment, bytes);
  return *data != nullptr ? 0 : ENOMEM;
}
}

namespace saccade {
namespace {

long allocations_of_run(const Plan& plan) {
  OneCall call(plan);
  const Tensors tensors = call.tensors();
  const long before = allocations;
  const Status status = run(plan, tensors, call.workspace());
  const long after = allocations;
  EXPECT_TRUE(status.ok()) << status.message();
  return after - before;
}

TEST(Allocation, TheCounterCounts) {
  const long before = allocations;
  const std::vector<int> one(10);
  EXPECT_EQ(allocations - before, 1);
  EXPECT_GT(
      [&] {
        const long start = allocations;
        EXPECT_TRUE(make_plan(Problem::dense(1, 1, 1, 1)).ok());
        return allocations - start;
      }(),
      0)
      << "the library's allocations are seen, too";
}

TEST(Allocation, RunAllocatesNothing) {
  for (const char* text : {"b1 h4 l96 d64 f32", "b2 h4/2 l40 d16 f32 causal", "b1 h2 lq1 lk4096 d64 f32",
                           "b1 h1 l300 d128 f32 window=64,0", "b1 h2 lq3 lk0 d8 f32"}) {
    const Problem p = parse_problem(text).value();
    for (const KernelInfo& kernel : kernels()) {
      const Result<Plan> plan = make_plan(p, {.kernel = std::string(kernel.name)});
      if (!plan.ok()) continue;
      allocations_of_run(plan.value());  // OpenMP makes its threads and their memory once
      EXPECT_EQ(allocations_of_run(plan.value()), 0) << kernel.name << " on " << text;
    }
  }
}

}  // namespace
}  // namespace saccade
