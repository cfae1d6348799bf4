// Every error that a problem alone can have: its own code and a sentence with the offending values.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <saccade/attention.h>
#include <saccade/plan.h>
#include <saccade/problem.h>

namespace saccade {
namespace {

constexpr std::int64_t kHuge = std::int64_t{1} << 40;

struct BadProblem {
  const char* name;
  std::function<void(Problem&)> change;
  Code code;
  std::vector<std::string> words;
};

void PrintTo(const BadProblem& bad,
             std::ostream* out) {  // NOLINT(readability-identifier-naming): GoogleTest's
  *out << bad.name;
}

std::vector<BadProblem> bad_problems() {
  const Code invalid = Code::invalid_argument;
  const Code unsupported = Code::unsupported;
  return {
      {"Dtype",
       [](Problem& p) { p.dtype = static_cast<DType>(7); },
       unsupported,
       {"dtype 7", "f16, bf16, f32"}},
      {"NegativeBatch", [](Problem& p) { p.batch = -1; }, invalid, {"batch is -1", "not negative"}},
      {"NegativeLength", [](Problem& p) { p.len_kv = -5; }, invalid, {"len_kv is -5", "not negative"}},
      {"NegativeTotal", [](Problem& p) { p.total_q = -2; }, invalid, {"total_q is -2", "not negative"}},
      {"NegativePages", [](Problem& p) { p.num_pages = -3; }, invalid, {"num_pages is -3", "not negative"}},
      {"HeadDimQk", [](Problem& p) { p.dim_qk = 513; }, unsupported, {"dim_qk is 513", "up to 512"}},
      {"HeadDimV", [](Problem& p) { p.dim_v = 4096; }, unsupported, {"dim_v is 4096", "up to 512"}},
      {"HeadsNotDivisible",
       [](Problem& p) { p.heads_kv = 3; },
       invalid,
       {"heads_q is 8", "heads_kv is 3", "must be a multiple"}},
      {"MoreKeyHeads", [](Problem& p) { p.heads_kv = 16; }, invalid, {"heads_q is 8", "heads_kv is 16"}},
      {"NoKeyHeads", [](Problem& p) { p.heads_kv = 0; }, invalid, {"heads_q is 8", "heads_kv is 0"}},
      {"SizesOverflow",
       [](Problem& p) { p.batch = kHuge, p.len_q = kHuge; },
       invalid,
       {"the sizes batch 1099511627776", "overflow 64 bits"}},
      {"PairsOverflow",
       [](Problem& p) { p.len_q = kHuge, p.len_kv = kHuge; },
       invalid,
       {"len 1099511627776/1099511627776", "overflow 64 bits"}},
      {"BatchOverflow",
       [](Problem& p) { p.heads_q = p.heads_kv = 0, p.batch = kUnbounded; },
       invalid,
       {"batch 9223372036854775807", "overflow 64 bits"}},
      {"StridesOverflow",
       [](Problem& p) { p.k.head = std::int64_t{1} << 60; },
       invalid,
       {"the strides of k overflow 64 bits", "(2, 8, 16, 1)"}},
      {"NegativeStridesOverflow",
       [](Problem& p) { p.v.batch = std::numeric_limits<std::int64_t>::min(); },
       invalid,
       {"the strides of v overflow 64 bits"}},
      {"OutputStridesOverflow",
       [](Problem& p) { p.o.row = kUnbounded / 8; },
       invalid,
       {"the strides of o overflow 64 bits"}},
      {"MaskStridesOverflow",
       [](Problem& p) { p.mask = MaskKind::boolean, p.mask_strides.row = kUnbounded / 2; },
       invalid,
       {"the strides of mask overflow 64 bits"}},
      {"LseStridesOverflow",
       [](Problem& p) { p.lse = true, p.lse_strides.head = kUnbounded / 8; },
       invalid,
       {"the strides of lse overflow 64 bits"}},
      {"AlibiStrideOverflow",
       [](Problem& p) { p.alibi = true, p.alibi_batch_stride = kUnbounded / 2; },
       invalid,
       {"the strides of alibi_slopes overflow 64 bits"}},
      {"LastStrideOfQ", [](Problem& p) { p.q.dim = 2; }, invalid, {"last stride of q is 2", "contiguous"}},
      {"LastStrideOfK", [](Problem& p) { p.k.dim = 0; }, invalid, {"last stride of k is 0", "contiguous"}},
      {"LastStrideOfV", [](Problem& p) { p.v.dim = -1; }, invalid, {"last stride of v is -1", "contiguous"}},
      {"LastStrideOfO", [](Problem& p) { p.o.dim = 64; }, invalid, {"last stride of o is 64", "contiguous"}},
      {"OutputRowsOverlap",
       [](Problem& p) { p.o.row = 63; },
       invalid,
       {"o overlaps itself", "(2, 8, 16)", "(16384, 2048, 126)"}},
      {"OutputBroadcast", [](Problem& p) { p.o.batch = 0; }, invalid, {"o overlaps itself"}},
      {"OutputHeadsOverlap", [](Problem& p) { p.o.head = p.o.row * 15; }, invalid, {"o overlaps itself"}},
      {"LseOverlapsItself",
       [](Problem& p) { p.lse = true, p.lse_strides.row = 0; },
       invalid,
       {"lse overlaps itself"}},
      {"ScaleNaN", [](Problem& p) { p.scale = NAN; }, invalid, {"scale is nan", "finite"}},
      {"ScaleInfinite", [](Problem& p) { p.scale = -INFINITY; }, invalid, {"scale is -inf", "finite"}},
      {"SoftcapNaN", [](Problem& p) { p.softcap = NAN; }, invalid, {"softcap is nan", "finite"}},
      {"SoftcapInfinite", [](Problem& p) { p.softcap = INFINITY; }, invalid, {"softcap is inf", "finite"}},
      {"SoftcapNegative", [](Problem& p) { p.softcap = -2; }, invalid, {"softcap is -2", "not negative"}},
      {"WindowLeft", [](Problem& p) { p.window_left = -1; }, invalid, {"window is (-1, ", "not be negative"}},
      {"WindowRight",
       [](Problem& p) { p.window_left = 5, p.window_right = -7; },
       invalid,
       {"window is (5, -7)", "not be negative"}},
      {"Alignment",
       [](Problem& p) { p.alignment = static_cast<Alignment>(2); },
       invalid,
       {"alignment is 2", "top_left or bottom_right"}},
      {"MaskKind",
       [](Problem& p) { p.mask = static_cast<MaskKind>(3); },
       invalid,
       {"mask is 3", "none, boolean or additive"}},
      {"MaskDtype",
       [](Problem& p) { p.mask = MaskKind::additive, p.mask_dtype = DType::bf16; },
       unsupported,
       {"mask_dtype is bf16", "dtype is f16"}},
      {"KvLayout",
       [](Problem& p) { p.kv_layout = static_cast<KvLayout>(9); },
       invalid,
       {"kv_layout is 9", "dense, ragged or paged"}},
      {"LengthsOfRaggedKeys",
       [](Problem& p) { p.kv_layout = KvLayout::ragged, p.total_kv = 4, p.kv_lengths = true; },
       invalid,
       {"kv_lengths", "ragged"}},
      {"PageSize",
       [](Problem& p) { p.kv_layout = KvLayout::paged, p.page_size = 0; },
       invalid,
       {"page_size is 0", "at least 1"}},
      {"BlockTableTooShort",
       [](Problem& p) { p.kv_layout = KvLayout::paged, p.page_size = 5, p.pages_per_sequence = 3; },
       invalid,
       {"len_kv is 16", "3 pages of 5 rows"}},
  };
}

class ProblemErrors : public testing::TestWithParam<BadProblem> {};

TEST_P(ProblemErrors, HaveTheirOwnSentence) {
  Problem p = Problem::dense(2, 8, 16, 64);
  ASSERT_TRUE(validate(p).ok());
  GetParam().change(p);
  const Status status = validate(p);
  EXPECT_EQ(status.code(), GetParam().code) << status.message();
  for (const std::string& words : GetParam().words) {
    EXPECT_NE(status.message().find(words), std::string::npos)
        << "'" << words << "' in: " << status.message();
  }
  // Whoever skips validate() gets the same answer from the planner.
  const Result<Plan> plan = make_plan(p);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(), status.message());
}

INSTANTIATE_TEST_SUITE_P(All, ProblemErrors, testing::ValuesIn(bad_problems()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ValidProblems, AreNotRefused) {
  const std::vector<std::function<void(Problem&)>> changes = {
      [](Problem& p) { p.batch = 0, p.pack(); },
      [](Problem& p) { p.heads_q = p.heads_kv = 0, p.pack(); },
      [](Problem& p) { p.len_q = 0, p.pack(); },
      [](Problem& p) { p.len_kv = 0, p.pack(); },
      [](Problem& p) { p.dim_qk = 0, p.pack(); },
      [](Problem& p) { p.dim_v = 0, p.pack(); },
      [](Problem& p) { p.dim_qk = 512, p.dim_v = 1, p.pack(); },
      [](Problem& p) { p.dim_v = 1, p.pack().o.dim = 7; },  // a last stride over one element is never taken
      [](Problem& p) { p.q.batch = 0, p.k.head = 0, p.v.row = 0; },  // inputs may broadcast
      [](Problem& p) { p.q.row = -p.q.row, p.o.head = -p.o.head; },  // and run backwards
      [](Problem& p) { p.window_left = 0, p.window_right = 0; },
      [](Problem& p) { p.scale = 0.0F; },
      [](Problem& p) {
        p.mask = MaskKind::boolean, p.mask_strides = {0, 0, 0, 0};
      },
      [](Problem& p) { p.mask = MaskKind::additive, p.mask_dtype = DType::f16; },
      [](Problem& p) { p.len_q = 0, p.len_kv = kHuge, p.batch = kHuge, p.heads_kv = p.heads_q = 0; },
  };
  for (std::size_t n = 0; n < changes.size(); ++n) {
    Problem p = Problem::dense(2, 8, 16, 64);
    changes[n](p);
    const Status status = validate(p);
    EXPECT_TRUE(status.ok()) << "change " << n << ": " << status.message();
  }
}

/// Four views that agree; each test disturbs one.
struct Views {
  View q = View::packed(nullptr, DType::f16, {2, 8, 16, 64});
  View k = View::packed(nullptr, DType::f16, {2, 4, 20, 64});
  View v = View::packed(nullptr, DType::f16, {2, 4, 20, 32});
  View o = View::packed(nullptr, DType::f16, {2, 8, 16, 32});
};

struct Mismatch {
  View Views::*view;
  std::size_t axis;
  const char* words;
};

class MismatchedDims : public testing::TestWithParam<Mismatch> {};

TEST_P(MismatchedDims, NameBothTensorsAndSizes) {
  Views views;
  ASSERT_TRUE(describe(views.q, views.k, views.v, views.o).ok());
  (views.*GetParam().view).sizes[GetParam().axis] = 7;
  const Result<Problem> problem = describe(views.q, views.k, views.v, views.o);
  ASSERT_FALSE(problem.ok());
  EXPECT_EQ(problem.status().code(), Code::invalid_argument);
  EXPECT_EQ(problem.status().message(), GetParam().words);
}

INSTANTIATE_TEST_SUITE_P(
    All, MismatchedDims,
    testing::Values(Mismatch{&Views::k, 0, "the batch of k is 7 but the batch of q is 2"},
                    Mismatch{&Views::v, 0, "the batch of v is 7 but the batch of q is 2"},
                    Mismatch{&Views::o, 0, "the batch of o is 7 but the batch of q is 2"},
                    Mismatch{&Views::v, 1, "the heads of v is 7 but the heads of k is 4"},
                    Mismatch{&Views::o, 1, "the heads of o is 7 but the heads of q is 8"},
                    Mismatch{&Views::v, 2, "the length of v is 7 but the length of k is 20"},
                    Mismatch{&Views::o, 2, "the length of o is 7 but the length of q is 16"},
                    Mismatch{&Views::k, 3, "the dim of k is 7 but the dim of q is 64"},
                    Mismatch{&Views::o, 3, "the dim of o is 7 but the dim of v is 32"}));

TEST(Describe, RefusesMixedTypesAndIndivisibleHeads) {
  Views mixed;
  mixed.v.dtype = DType::f32;
  EXPECT_EQ(describe(mixed.q, mixed.k, mixed.v, mixed.o).status().message(),
            "v is f32 but q is f16; q, k, v and o share one type");
  Views heads;
  heads.k = View::packed(nullptr, DType::f16, {2, 3, 20, 64});
  heads.v = View::packed(nullptr, DType::f16, {2, 3, 20, 32});
  EXPECT_NE(describe(heads.q, heads.k, heads.v, heads.o).status().message().find("must be a multiple"),
            std::string::npos);
}

TEST(Describe, SizesThatOverflowAreAnErrorNotUndefined) {
  const View huge = View::packed(nullptr, DType::f16, {kHuge, 2, kHuge, 64});
  EXPECT_NE(describe(huge, huge, huge, huge).status().message().find("overflow 64 bits"), std::string::npos);
}

TEST(Describe, KeepsSizesAndStrides) {
  Views views;
  views.q.strides = {1, 2, 3, 1};
  const Result<Problem> problem = describe(views.q, views.k, views.v, views.o);
  ASSERT_TRUE(problem.ok()) << problem.status().message();
  EXPECT_EQ(problem->q, (Strides{1, 2, 3, 1}));
  EXPECT_EQ(problem->heads_q, 8);
  EXPECT_EQ(problem->heads_kv, 4);
  EXPECT_EQ(problem->len_kv, 20);
  EXPECT_EQ(problem->dim_v, 32);
  EXPECT_EQ(problem->lse_strides, (LseStrides{8 * 16, 16, 1}));
}

}  // namespace
}  // namespace saccade
