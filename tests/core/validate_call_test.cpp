// Every error that the pointers of a call, or the integers behind them, can have: its own sentence, and
// nothing written.
#include <algorithm>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <ostream>
#include <span>
#include <vector>

#include <saccade/attention.h>
#include <saccade/plan.h>
#include <saccade/run.h>

namespace saccade {
namespace {

constexpr std::byte kPoison{0xa5};

/// A call with every optional tensor: ragged queries, paged keys, mask, slopes, sinks, lse.
class Call {
 public:
  Call() {
    p.dtype = DType::f32;
    p.batch = 2;
    p.heads_q = 4;
    p.heads_kv = 2;
    p.len_q = 3;
    p.len_kv = 6;
    p.dim_qk = p.dim_v = 8;
    p.ragged_q = true;
    p.total_q = 5;
    p.kv_layout = KvLayout::paged;
    p.kv_lengths = true;
    p.page_size = 4;
    p.num_pages = 4;
    p.pages_per_sequence = 2;
    p.mask = MaskKind::boolean;
    p.alibi = p.sinks = p.lse = true;
    p.pack();
    q.assign(5 * 4 * 8, 1);
    k.assign(4 * 4 * 2 * 8, 1);
    v = k;
    o.resize(q.size());
    lse.resize(4 * 5);
    mask.assign(2 * 4 * 3 * 6, 1);
    slopes.assign(4, 0.5F);
    sinks.assign(4, 0);
    cu_q = {0, 3, 5};
    lengths = {6, 5};
    table = {3, 0, 1, 2};
    t = {.q = q.data(),
         .k = k.data(),
         .v = v.data(),
         .o = o.data(),
         .lse = lse.data(),
         .mask = mask.data(),
         .alibi_slopes = slopes.data(),
         .sinks = sinks.data(),
         .cu_seqlens_q = cu_q.data(),
         .kv_lengths = lengths.data(),
         .block_table = table.data()};
  }

  /// The same call with ragged keys instead of paged ones.
  Call& ragged_keys() {
    p.kv_layout = KvLayout::ragged;
    p.kv_lengths = false;
    p.total_kv = 11;
    p.pack();
    cu_kv = {0, 6, 11};
    t.cu_seqlens_kv = cu_kv.data();
    return *this;
  }

  /// Plans and runs with poisoned outputs; `disturb_workspace` may change the workspace that is passed.
  Status run(const std::function<void(Workspace&)>& disturb_workspace = {}) {
    const Result<Plan> plan = make_plan(p, {.kernel = "cpu_reference"});
    if (!plan.ok()) return plan.status();
    memory.assign(plan->workspace_bytes() + 2 * kWorkspaceAlignment, kPoison);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    Workspace workspace{memory.data() + (kWorkspaceAlignment - address % kWorkspaceAlignment),
                        plan->workspace_bytes()};
    if (disturb_workspace) disturb_workspace(workspace);
    poison(o);
    poison(lse);
    return saccade::run(plan.value(), t, workspace);
  }

  [[nodiscard]] bool untouched() const {
    return is_poison(o) && is_poison(lse) &&
           std::ranges::all_of(memory, [](std::byte b) { return b == kPoison; });
  }

  Problem p;
  Tensors t;
  std::vector<float> q, k, v, o, lse, slopes, sinks;
  std::vector<std::uint8_t> mask;
  std::vector<std::int32_t> cu_q, cu_kv, lengths, table;
  std::vector<std::byte> memory;

 private:
  static void poison(std::vector<float>& data) {
    std::memset(data.data(), std::to_integer<int>(kPoison), data.size() * sizeof(float));
  }
  static bool is_poison(const std::vector<float>& data) {
    return std::ranges::all_of(std::as_bytes(std::span(data)), [](std::byte b) { return b == kPoison; });
  }
};

template <class T>
T* moved(T* pointer, std::ptrdiff_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes));
}

struct BadCall {
  const char* name;
  std::function<void(Call&)> change;
  std::vector<std::string> words;
};

void PrintTo(const BadCall& bad, std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest's
  *out << bad.name;
}

std::vector<BadCall> null_pointers() {
  return {
      {"NullQ", [](Call& c) { c.t.q = nullptr; }, {"q is null"}},
      {"NullK", [](Call& c) { c.t.k = nullptr; }, {"k is null"}},
      {"NullV", [](Call& c) { c.t.v = nullptr; }, {"v is null"}},
      {"NullO", [](Call& c) { c.t.o = nullptr; }, {"o is null"}},
      {"NullLse", [](Call& c) { c.t.lse = nullptr; }, {"lse is null"}},
      {"NullMask", [](Call& c) { c.t.mask = nullptr; }, {"mask is null"}},
      {"NullSlopes", [](Call& c) { c.t.alibi_slopes = nullptr; }, {"alibi_slopes is null"}},
      {"NullSinks", [](Call& c) { c.t.sinks = nullptr; }, {"sinks is null"}},
      {"NullCuQ", [](Call& c) { c.t.cu_seqlens_q = nullptr; }, {"cu_seqlens_q is null"}},
      {"NullCuKv", [](Call& c) { c.ragged_keys().t.cu_seqlens_kv = nullptr; }, {"cu_seqlens_kv is null"}},
      {"NullLengths", [](Call& c) { c.t.kv_lengths = nullptr; }, {"kv_lengths is null"}},
      {"NullTable", [](Call& c) { c.t.block_table = nullptr; }, {"block_table is null"}},
  };
}

std::vector<BadCall> misaligned_pointers() {
  const std::string words = "not aligned to its element of 4 bytes";
  return {
      {"MisalignedQ", [](Call& c) { c.t.q = moved(c.t.q, 2); }, {"q is at 0x", words}},
      {"MisalignedK", [](Call& c) { c.t.k = moved(c.t.k, 1); }, {"k is at 0x", words}},
      {"MisalignedV", [](Call& c) { c.t.v = moved(c.t.v, 3); }, {"v is at 0x", words}},
      {"MisalignedO", [](Call& c) { c.t.o = moved(c.t.o, 2); }, {"o is at 0x", words}},
      {"MisalignedLse", [](Call& c) { c.t.lse = moved(c.t.lse, 2); }, {"lse is at 0x", words}},
      {"MisalignedSlopes",
       [](Call& c) { c.t.alibi_slopes = moved(c.t.alibi_slopes, 1); },
       {"alibi_slopes", words}},
      {"MisalignedSinks", [](Call& c) { c.t.sinks = moved(c.t.sinks, 1); }, {"sinks is at", words}},
      {"MisalignedCuQ",
       [](Call& c) { c.t.cu_seqlens_q = moved(c.t.cu_seqlens_q, 2); },
       {"cu_seqlens_q", words}},
      {"MisalignedTable",
       [](Call& c) { c.t.block_table = moved(c.t.block_table, 2); },
       {"block_table", words}},
      {"MisalignedBias",
       [](Call& c) {
         c.p.mask = MaskKind::additive;
         c.t.mask = moved(c.t.mask, 1);
       },
       {"mask is at 0x", words}},
  };
}

std::vector<BadCall> overlaps() {
  return {
      {"OutputOnQ", [](Call& c) { c.t.o = c.q.data(); }, {"o at 0x", "overlaps q at 0x"}},
      {"OutputOnK", [](Call& c) { c.t.k = c.o.data(); }, {"o at 0x", "overlaps k at 0x"}},
      {"OutputOnTheEndOfV",
       [](Call& c) { c.t.v = c.o.data() - (c.v.size() - 1); },
       {"o at 0x", "overlaps v at 0x"}},
      {"OutputOnSinks", [](Call& c) { c.t.sinks = c.o.data() + 7; }, {"o at 0x", "overlaps sinks at 0x"}},
      {"LseOnQ", [](Call& c) { c.t.lse = c.q.data(); }, {"lse at 0x", "overlaps q at 0x"}},
      {"LseOnOutput", [](Call& c) { c.t.lse = c.o.data() + 3; }, {"lse at 0x", "overlaps o at 0x"}},
  };
}

std::vector<BadCall> bad_indices() {
  return {
      {"CuQStart",
       [](Call& c) {
         c.cu_q = {1, 3, 5};
       },
       {"cu_seqlens_q[0] is 1", "must be 0"}},
      {"CuQDecreases",
       [](Call& c) {
         c.cu_q = {0, 3, 2};
       },
       {"cu_seqlens_q decreases", "entry 1 is 3", "entry 2 is 2"}},
      {"CuQPastTheEnd",
       [](Call& c) {
         c.cu_q = {0, 3, 6};
       },
       {"cu_seqlens_q[2] is 6", "past the end of 5 rows"}},
      {"CuQTooLong",
       [](Call& c) {
         c.cu_q = {0, 4, 5};
       },
       {"cu_seqlens_q gives sequence 0 a length of 4", "len_q is 3"}},
      {"CuKvStart", [](Call& c) { c.ragged_keys().cu_kv[0] = -1; }, {"cu_seqlens_kv[0] is -1", "must be 0"}},
      {"CuKvDecreases",
       [](Call& c) { c.ragged_keys().cu_kv[1] = -4; },
       {"cu_seqlens_kv decreases", "entry 1 is -4"}},
      {"CuKvPastTheEnd",
       [](Call& c) { c.ragged_keys().cu_kv[2] = 12; },
       {"cu_seqlens_kv[2] is 12", "past the end of 11 rows"}},
      {"CuKvTooLong",
       [](Call& c) {
         c.ragged_keys().cu_kv = {0, 7, 11};
       },
       {"cu_seqlens_kv gives sequence 0 a length of 7", "len_kv is 6"}},
      {"LengthNegative", [](Call& c) { c.lengths[1] = -1; }, {"kv_lengths[1] is -1", "from 0 to len_kv, 6"}},
      {"LengthTooLong", [](Call& c) { c.lengths[0] = 7; }, {"kv_lengths[0] is 7", "from 0 to len_kv, 6"}},
      {"PageNegative", [](Call& c) { c.table[2] = -1; }, {"block_table[1][0] is -1", "there are 4 pages"}},
      {"PagePastTheEnd", [](Call& c) { c.table[1] = 4; }, {"block_table[0][1] is 4", "there are 4 pages"}},
  };
}

class CallErrors : public testing::TestWithParam<BadCall> {};

TEST_P(CallErrors, HaveTheirOwnSentenceAndWriteNothing) {
  Call call;
  GetParam().change(call);
  const Status status = call.run();
  EXPECT_EQ(status.code(), Code::invalid_argument) << status.message();
  for (const std::string& words : GetParam().words) {
    EXPECT_NE(status.message().find(words), std::string::npos)
        << "'" << words << "' in: " << status.message();
  }
  EXPECT_TRUE(call.untouched());
}

const auto kCaseName = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Null, CallErrors, testing::ValuesIn(null_pointers()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Misaligned, CallErrors, testing::ValuesIn(misaligned_pointers()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Overlap, CallErrors, testing::ValuesIn(overlaps()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Indices, CallErrors, testing::ValuesIn(bad_indices()), kCaseName);

TEST(ValidCalls, WriteEveryOutput) {
  for (const bool ragged : {false, true}) {
    Call call;
    if (ragged) call.ragged_keys();
    const Status status = call.run();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_FALSE(call.untouched());
    for (const float x : call.o)
      EXPECT_EQ(x <= 1.0F && x > 0.5F, true) << "values of 1, less the sink's share";
  }
}

TEST(ValidCalls, WhatIsNotUsedMayBeAnything) {
  Call call;
  call.p.lse = false;
  call.t.lse = nullptr;
  call.t.cu_seqlens_kv = moved<const std::int32_t>(nullptr, 3);
  call.lengths = {6, 4};
  call.table[3] = 99;  // the second page of sequence 1, which needs only one
  EXPECT_TRUE(call.run().ok());
}

TEST(ValidCalls, EmptyTensorsMayBeNull) {
  const Problem p = Problem::dense(0, 4, 16, 8, DType::f32);
  EXPECT_TRUE(attend(p, {}).ok());
  Problem no_queries = Problem::dense(2, 4, 0, 8, DType::f32);
  EXPECT_TRUE(attend(no_queries, {}).ok());
}

TEST(ValidCalls, InterleavedOutputsDoNotOverlap) {
  // q and o share rows of 16 floats: no byte in common, so no complaint.
  Problem p = Problem::dense(1, 1, 4, 8, DType::f32);
  p.q.row = p.o.row = 16;
  std::vector<float> shared(4 * 16, 1.0F);
  const std::vector<float> keys(4 * 8, 1.0F);
  EXPECT_TRUE(
      attend(p, {.q = shared.data(), .k = keys.data(), .v = keys.data(), .o = shared.data() + 8}).ok());
  const Status status =
      attend(p, {.q = shared.data(), .k = keys.data(), .v = keys.data(), .o = shared.data() + 7});
  EXPECT_NE(status.message().find("overlaps q"), std::string::npos) << status.message();
}

class WorkspaceErrors : public testing::Test {
 protected:
  void expect(const std::function<void(Workspace&)>& disturb, Code code, const std::string& words) {
    const Status status = call_.run(disturb);
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_TRUE(call_.untouched());
  }
  Call call_;
};

TEST_F(WorkspaceErrors, Null) {
  expect([](Workspace& w) { w.data = nullptr; }, Code::workspace_too_small,
         "workspace is null; the plan needs ");
}

TEST_F(WorkspaceErrors, TooSmall) {
  const std::size_t needed = make_plan(call_.p, {.kernel = "cpu_reference"}).value().workspace_bytes();
  expect([](Workspace& w) { w.bytes -= 1; }, Code::workspace_too_small,
         "workspace has " + std::to_string(needed - 1) + " bytes; the plan needs " + std::to_string(needed));
}

TEST_F(WorkspaceErrors, Misaligned) {
  expect([](Workspace& w) { w.data = moved(w.data, 64); }, Code::workspace_too_small,
         "not aligned to 256 bytes");
}

TEST_F(WorkspaceErrors, OnAnOutput) {
  expect([this](Workspace& w) { call_.t.o = w.data; }, Code::invalid_argument, "overlaps workspace");
}

TEST_F(WorkspaceErrors, OnAnInput) {
  expect([this](Workspace& w) { call_.t.q = w.data; }, Code::invalid_argument, "overlaps q");
}

TEST(DeviceErrors, NameTheDevice) {
  const Problem p = Problem::dense(1, 1, 4, 8, DType::f32);
  const Status host = make_plan(p, {.device = {DeviceKind::cpu, 3}}).status();
  EXPECT_EQ(host.code(), Code::device_unavailable);
  EXPECT_NE(host.message().find("cpu:3"), std::string::npos) << host.message();
  const Status cuda = make_plan(p, {.device = {DeviceKind::cuda, 99}}).status();
  EXPECT_EQ(cuda.code(), Code::device_unavailable);
  EXPECT_NE(cuda.message().find("cuda:99"), std::string::npos) << cuda.message();
}

}  // namespace
}  // namespace saccade
