#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <saccade/plan.h>
#include <saccade/problem.h>
#include <saccade/run.h>
#include <saccade/saccade.h>

namespace {

saccade_problem parsed(const char* text) {
  saccade_problem p{};
  EXPECT_EQ(saccade_problem_parse(text, &p), SACCADE_OK) << saccade_last_error();
  return p;
}

std::string printed(const saccade_problem& p) {
  size_t length = 0;
  EXPECT_EQ(saccade_problem_print(&p, nullptr, 0, &length), SACCADE_OK) << saccade_last_error();
  std::string text(length + 1, '?');
  EXPECT_EQ(saccade_problem_print(&p, text.data(), text.size(), nullptr), SACCADE_OK);
  EXPECT_EQ(text.back(), '\0');
  text.pop_back();
  return text;
}

bool last_error_has(const std::string& words) {
  return std::string(saccade_last_error()).find(words) != std::string::npos;
}

saccade_tensors tensors_of(const void* q, const void* k, const void* v, void* o, float* lse = nullptr) {
  saccade_tensors tensors{};
  tensors.struct_size = sizeof tensors;
  tensors.q = q;
  tensors.k = k;
  tensors.v = v;
  tensors.o = o;
  tensors.lse = lse;
  return tensors;
}

saccade_options reference_options() {
  saccade_options options{};
  options.struct_size = sizeof options;
  options.kernel = "cpu_reference";
  return options;
}

struct DestroyPlan {
  void operator()(saccade_plan* plan) const { saccade_plan_destroy(plan); }
};
using PlanHandle = std::unique_ptr<saccade_plan, DestroyPlan>;

TEST(CApi, VersionsAgree) {
  const std::string expected = std::to_string(SACCADE_VERSION_MAJOR) + "." +
                               std::to_string(SACCADE_VERSION_MINOR) + "." +
                               std::to_string(SACCADE_VERSION_PATCH);
  EXPECT_EQ(saccade_version(), expected);
  EXPECT_EQ(saccade::version(), expected);
}

TEST(CApi, InitFillsTheDefaults) {
  saccade_problem p;
  std::memset(&p, 0xff, sizeof p);
  ASSERT_EQ(saccade_problem_init(&p, SACCADE_BF16, 2, 8, 4, 16, 20, 64, 32), SACCADE_OK)
      << saccade_last_error();
  EXPECT_EQ(p.struct_size, sizeof p);
  EXPECT_EQ(printed(p), "b2 h8/4 lq16 lk20 dqk64 dv32 bf16");
  EXPECT_EQ(p.has_scale, 0);
  EXPECT_EQ(p.scale, 0.125F);
  EXPECT_EQ(p.window_left, SACCADE_UNBOUNDED);
  EXPECT_EQ(p.window_right, SACCADE_UNBOUNDED);
  EXPECT_EQ(p.v.batch, 4 * 20 * 32);
  EXPECT_EQ(p.lse_head_stride, 16);
}

TEST(CApi, InitReportsIllegalSizes) {
  saccade_problem p;
  EXPECT_EQ(saccade_problem_init(&p, SACCADE_F16, 1, 8, 3, 4, 4, 64, 64), SACCADE_INVALID_ARGUMENT);
  EXPECT_TRUE(last_error_has("must be a multiple")) << saccade_last_error();
  for (const int32_t dtype : {-1, 3, 256, 512}) {
    EXPECT_EQ(saccade_problem_init(&p, dtype, 1, 8, 8, 4, 4, 64, 64), SACCADE_UNSUPPORTED) << dtype;
    EXPECT_TRUE(last_error_has("dtype")) << saccade_last_error();
  }
}

TEST(CApi, EveryFieldCrossesBothWays) {
  for (const char* text :
       {"b2 h8/2 lq5 lk9 dqk64 dv32 bf16 scale=0.5 softcap=20 causal br window=3,4 bias32=hqk alibi=8 sinks "
        "lse "
        "varlen-q=9 paged=4,7,3 kvlens",
        "b1 h4 l16 d64 f16 mask=bk ls=99,98,97", "b3 h2 lq4 lk6 d8 f32 varlen-q=11 varlen-kv=17",
        "b2 h4 l16 d64 f32 qs=-1,2,3 ks=4,5,6 vs=7,8,9 os=10000,11,1200 mask ms=1,2,3,4",
        "b1 h8 l512 d64 f16 blhd"}) {
    const saccade_problem p = parsed(text);
    EXPECT_EQ(printed(p), saccade::to_string(saccade::parse_problem(text).value())) << text;
  }
}

TEST(CApi, PackFollowsTheSizes) {
  saccade_problem p = parsed("b2 h4 l16 d64 f16");
  p.len_kv = 100;
  p.heads_kv = 1;
  ASSERT_EQ(saccade_problem_pack(&p), SACCADE_OK);
  EXPECT_EQ(printed(p), "b2 h4/1 lq16 lk100 d64 f16");
}

TEST(CApi, PrintCutsAndTerminates) {
  const saccade_problem p = parsed("b1 h8 l512 d64 f16");
  std::array<char, 6> text{};
  size_t length = 0;
  ASSERT_EQ(saccade_problem_print(&p, text.data(), text.size(), &length), SACCADE_OK);
  EXPECT_STREQ(text.data(), "b1 h8");
  EXPECT_EQ(length, std::strlen("b1 h8 l512 d64 f16"));
  EXPECT_EQ(saccade_problem_print(&p, nullptr, 6, &length), SACCADE_INVALID_ARGUMENT);
  EXPECT_TRUE(last_error_has("text is null"));
}

TEST(CApi, ParseErrorsLeaveTheProblemAlone) {
  saccade_problem p = parsed("b1 h8 l512 d64 f16");
  EXPECT_EQ(saccade_problem_parse("b1 h8 l512 f12", &p), SACCADE_INVALID_ARGUMENT);
  EXPECT_TRUE(last_error_has("token 'f12'")) << saccade_last_error();
  EXPECT_EQ(printed(p), "b1 h8 l512 d64 f16");
}

TEST(CApi, NullArgumentsAreErrors) {
  saccade_problem p = parsed("l4");
  saccade_plan* plan = nullptr;
  const saccade_tensors tensors = tensors_of(nullptr, nullptr, nullptr, nullptr);
  const std::vector<std::pair<std::function<saccade_status()>, std::string>> calls = {
      {[&] { return saccade_problem_init(nullptr, 0, 1, 1, 1, 1, 1, 1, 1); }, "problem is null"},
      {[&] { return saccade_problem_pack(nullptr); }, "problem is null"},
      {[&] { return saccade_problem_parse(nullptr, &p); }, "text is null"},
      {[&] { return saccade_problem_parse("l4", nullptr); }, "problem is null"},
      {[&] { return saccade_problem_print(nullptr, nullptr, 0, nullptr); }, "problem is null"},
      {[&] { return saccade_problem_validate(nullptr); }, "problem is null"},
      {[&] { return saccade_plan_create(nullptr, nullptr, &plan); }, "problem is null"},
      {[&] { return saccade_plan_create(&p, nullptr, nullptr); }, "plan is null"},
      {[&] { return saccade_run(nullptr, &tensors, nullptr, 0, nullptr); }, "plan is null"},
      {[&] { return saccade_attend(nullptr, &tensors, nullptr); }, "problem is null"},
      {[&] { return saccade_attend(&p, nullptr, nullptr); }, "tensors is null"},
  };
  for (const auto& [call, words] : calls) {
    EXPECT_EQ(call(), SACCADE_INVALID_ARGUMENT) << words;
    EXPECT_EQ(saccade_last_error(), words);
  }
  EXPECT_EQ(saccade_plan_explain(nullptr), nullptr);
  EXPECT_EQ(saccade_plan_kernel(nullptr), nullptr);
  EXPECT_EQ(saccade_plan_config(nullptr), nullptr);
  EXPECT_EQ(saccade_plan_workspace_bytes(nullptr), 0U);
  saccade_plan_destroy(nullptr);
}

TEST(CApi, UnknownStructSizesAreErrors) {
  for (const size_t wrong : {size_t{0}, sizeof(saccade_problem) - 8, sizeof(saccade_problem) + 8}) {
    saccade_problem p = parsed("l4");
    p.struct_size = wrong;
    saccade_plan* plan = nullptr;
    EXPECT_EQ(saccade_plan_create(&p, nullptr, &plan), SACCADE_INVALID_ARGUMENT);
    EXPECT_TRUE(last_error_has("problem.struct_size is " + std::to_string(wrong))) << saccade_last_error();
    EXPECT_EQ(saccade_problem_validate(&p), SACCADE_INVALID_ARGUMENT);
  }
  const saccade_problem p = parsed("l4");
  saccade_plan* plan = nullptr;
  saccade_options options{};
  options.struct_size = 1;
  EXPECT_EQ(saccade_plan_create(&p, &options, &plan), SACCADE_INVALID_ARGUMENT);
  EXPECT_TRUE(last_error_has("options.struct_size is 1")) << saccade_last_error();
  const saccade_tensors tensors{};
  EXPECT_EQ(saccade_attend(&p, &tensors, nullptr), SACCADE_INVALID_ARGUMENT);
  EXPECT_TRUE(last_error_has("tensors.struct_size is 0")) << saccade_last_error();
}

TEST(CApi, PlanningFollowsTheOptions) {
  const saccade_problem p = parsed("b1 h2 l16 d8 f32");
  saccade_options options = reference_options();
  options.config = "threads=1";
  options.threads = 2;
  saccade_plan* raw = nullptr;
  ASSERT_EQ(saccade_plan_create(&p, &options, &raw), SACCADE_OK) << saccade_last_error();
  const PlanHandle plan(raw);
  EXPECT_STREQ(saccade_plan_kernel(raw), "cpu_reference");
  EXPECT_STREQ(saccade_plan_config(raw), "threads=1");
  EXPECT_NE(std::string(saccade_plan_explain(raw)).find("chosen by name"), std::string::npos);
  EXPECT_GT(saccade_plan_workspace_bytes(raw), 0U);

  options.device_kind = 7;
  EXPECT_EQ(saccade_plan_create(&p, &options, &raw), SACCADE_INVALID_ARGUMENT);
  EXPECT_EQ(raw, nullptr);
  EXPECT_TRUE(last_error_has("device_kind is 7")) << saccade_last_error();
  options.device_kind = SACCADE_CUDA;
  options.device_index = 99;
  EXPECT_EQ(saccade_plan_create(&p, &options, &raw), SACCADE_DEVICE_UNAVAILABLE);
  EXPECT_TRUE(last_error_has("cuda:99")) << saccade_last_error();
}

TEST(CApi, OutOfMemoryIsAStatus) {
  // Legal sizes whose workspace no machine has.
  const saccade_problem p = parsed("b1 h1 lq1 lk8796093022208 d1 f16 ks=0,0,0 vs=0,0,0");
  const std::array<uint16_t, 1> one{};
  std::array<uint16_t, 1> o{};
  const saccade_tensors tensors = tensors_of(one.data(), one.data(), one.data(), o.data());
  const saccade_options options = reference_options();
  EXPECT_EQ(saccade_attend(&p, &tensors, &options), SACCADE_OUT_OF_MEMORY);
  EXPECT_TRUE(last_error_has("no memory for a workspace of ")) << saccade_last_error();
}

/// A small causal problem with its answer from the C++ interface.
class Running : public testing::Test {
 protected:
  Running() : problem_(parsed("b1 h4/2 l12 d8 f32 causal lse")) {
    for (std::size_t i = 0; i < q_.size(); ++i) q_[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    for (std::size_t i = 0; i < k_.size(); ++i) {
      k_[i] = static_cast<float>(std::cos(static_cast<double>(i) * 0.3));
      v_[i] = static_cast<float>(std::sin(static_cast<double>(i) * 1.7));
    }
    expected_o_.resize(q_.size());
    expected_lse_.resize(4 * 12);
    const saccade::Status status = saccade::attend(
        saccade::parse_problem("b1 h4/2 l12 d8 f32 causal lse").value(), {.q = q_.data(),
                                                                          .k = k_.data(),
                                                                          .v = v_.data(),
                                                                          .o = expected_o_.data(),
                                                                          .lse = expected_lse_.data()});
    EXPECT_TRUE(status.ok()) << status.message();
    tensors_ = tensors_of(q_.data(), k_.data(), v_.data(), o_.data(), lse_.data());
  }

  saccade_problem problem_;
  std::vector<float> q_ = std::vector<float>(4 * 12 * 8), k_ = std::vector<float>(2 * 12 * 8), v_ = k_;
  std::vector<float> o_ = q_, lse_ = std::vector<float>(4 * 12), expected_o_, expected_lse_;
  saccade_tensors tensors_{};
};

TEST_F(Running, APlanGivesTheAnswerOfCpp) {
  saccade_plan* raw = nullptr;
  ASSERT_EQ(saccade_plan_create(&problem_, nullptr, &raw), SACCADE_OK) << saccade_last_error();
  const PlanHandle plan(raw);
  const size_t bytes = saccade_plan_workspace_bytes(raw);
  const std::unique_ptr<void, decltype(&std::free)> workspace(
      std::aligned_alloc(SACCADE_WORKSPACE_ALIGNMENT,
                         (bytes / SACCADE_WORKSPACE_ALIGNMENT + 1) * SACCADE_WORKSPACE_ALIGNMENT),
      &std::free);
  ASSERT_EQ(saccade_run(raw, &tensors_, workspace.get(), bytes, nullptr), SACCADE_OK) << saccade_last_error();
  EXPECT_EQ(o_, expected_o_);
  EXPECT_EQ(lse_, expected_lse_);
}

TEST_F(Running, OneCallGivesTheAnswerOfCpp) {
  ASSERT_EQ(saccade_attend(&problem_, &tensors_, nullptr), SACCADE_OK) << saccade_last_error();
  EXPECT_EQ(o_, expected_o_);
  EXPECT_EQ(lse_, expected_lse_);
}

TEST_F(Running, ErrorsLeaveTheOutputsAlone) {
  const std::vector<float> before = o_;
  tensors_.k = nullptr;
  EXPECT_EQ(saccade_attend(&problem_, &tensors_, nullptr), SACCADE_INVALID_ARGUMENT);
  EXPECT_TRUE(last_error_has("k is null")) << saccade_last_error();
  EXPECT_EQ(o_, before);
}

TEST(CApi, TheWorkspaceIsChecked) {
  const saccade_problem p = parsed("b1 h1 l4 d4 f32");
  const saccade_options options = reference_options();
  saccade_plan* raw = nullptr;
  ASSERT_EQ(saccade_plan_create(&p, &options, &raw), SACCADE_OK) << saccade_last_error();
  const PlanHandle plan(raw);
  std::array<float, 16> q{}, k{}, v{}, o{};
  const saccade_tensors tensors = tensors_of(q.data(), k.data(), v.data(), o.data());
  EXPECT_EQ(saccade_run(raw, &tensors, nullptr, 0, nullptr), SACCADE_WORKSPACE_TOO_SMALL);
  EXPECT_TRUE(last_error_has("workspace is null")) << saccade_last_error();
}

TEST(CApi, TheLastErrorBelongsToItsThread) {
  saccade_problem p;
  EXPECT_EQ(saccade_problem_parse("l4 mine", &p), SACCADE_INVALID_ARGUMENT);
  std::thread([] {
    EXPECT_STREQ(saccade_last_error(), "");
    saccade_problem other;
    EXPECT_EQ(saccade_problem_parse("l4 theirs", &other), SACCADE_INVALID_ARGUMENT);
    EXPECT_TRUE(last_error_has("theirs"));
  }).join();
  EXPECT_TRUE(last_error_has("mine"));
}

}  // namespace
