#include <gtest/gtest.h>
#include <random>

#include <saccade/problem.h>

namespace saccade {
namespace {

Problem parsed(std::string_view text) {
  const Result<Problem> result = parse_problem(text);
  EXPECT_TRUE(result.ok()) << text << ": " << result.status().message();
  return result.ok() ? result.value() : Problem{};
}

TEST(ShapeSyntax, TheMissionShape) {
  EXPECT_EQ(parsed("b1 h8 l512 d64 f16"), Problem::dense(1, 8, 512, 64));
  EXPECT_EQ(to_string(Problem::dense(1, 8, 512, 64)), "b1 h8 l512 d64 f16");
}

TEST(ShapeSyntax, OrderAndBlanksDoNotMatter) {
  EXPECT_EQ(parsed("  f16\td64 causal l512  b2 h8\n"), parsed("b2 h8 l512 d64 f16 causal"));
}

TEST(ShapeSyntax, WhatIsLeftOutHasDefaults) {
  const Problem p = parsed("l3");
  EXPECT_EQ(p, Problem::dense(1, 1, 3, 64, DType::f16));
}

TEST(ShapeSyntax, GroupedHeadsInEverySpelling) {
  for (const char* text : {"h32/8 l4", "hq32/hkv8 l4", "hq32 hkv8 l4", "hkv8 hq32 l4"}) {
    const Problem p = parsed(text);
    EXPECT_EQ(p.heads_q, 32) << text;
    EXPECT_EQ(p.heads_kv, 8) << text;
  }
}

TEST(ShapeSyntax, SuffixesAndBounds) {
  const Problem p = parsed("lq1 lk4k window=127,inf");
  EXPECT_EQ(p.len_kv, 4096);
  EXPECT_EQ(p.window_left, 127);
  EXPECT_EQ(p.window_right, kUnbounded);
}

TEST(ShapeSyntax, EveryFeatureByName) {
  const Problem p = parsed(
      "b2 h4 l8 dqk16 dv24 bf16 causal-br softcap=30 scale=0.5 window=3,0 bias32=hqk alibi=4 sinks lse "
      "varlen-q=11 paged=4,20,3 kvlens");
  EXPECT_EQ(p.dtype, DType::bf16);
  EXPECT_EQ(p.dim_qk, 16);
  EXPECT_EQ(p.dim_v, 24);
  EXPECT_TRUE(p.causal);
  EXPECT_EQ(p.alignment, Alignment::bottom_right);
  EXPECT_EQ(p.softcap, 30);
  EXPECT_EQ(p.scale, 0.5F);
  EXPECT_EQ(p.mask, MaskKind::additive);
  EXPECT_EQ(p.mask_dtype, DType::f32);
  EXPECT_EQ(p.mask_strides, (MaskStrides{0, 64, 8, 1}));
  EXPECT_TRUE(p.alibi);
  EXPECT_EQ(p.alibi_batch_stride, 4);
  EXPECT_TRUE(p.sinks);
  EXPECT_TRUE(p.lse);
  EXPECT_TRUE(p.ragged_q);
  EXPECT_EQ(p.total_q, 11);
  EXPECT_EQ(p.kv_layout, KvLayout::paged);
  EXPECT_EQ(p.num_pages, 20);
  EXPECT_EQ(p.pages_per_sequence, 3);
  EXPECT_TRUE(p.kv_lengths);
}

TEST(ShapeSyntax, LayoutsFillInWhatTheyImply) {
  const Problem ragged = parsed("b3 h2 lq5 lk7 varlen");
  EXPECT_EQ(ragged.total_q, 15);
  EXPECT_EQ(ragged.total_kv, 21);
  const Problem paged = parsed("paged=4 b3 lq1 lk9");
  EXPECT_EQ(paged.pages_per_sequence, 3);
  EXPECT_EQ(paged.num_pages, 9);
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  /// A random problem in which what is not in use has its default: the text does not mention it.
  Problem next() {
    Problem p;
    p.dtype = static_cast<DType>(in(0, 2));
    p.batch = in(0, 4);
    p.heads_kv = in(1, 4);
    p.heads_q = p.heads_kv * in(1, 3);
    p.len_q = in(0, 40);
    p.len_kv = coin() ? p.len_q : in(0, 40);
    p.dim_qk = in(1, 80);
    p.dim_v = coin() ? p.dim_qk : in(1, 80);
    layout(p);
    p.pack(coin() ? Order::bhld : Order::blhd);
    features(p);
    strides(p);
    return p;
  }

 private:
  std::int64_t in(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool coin() { return in(0, 1) == 1; }
  float number() { return std::uniform_real_distribution<float>(-3, 3)(random_) * (coin() ? 1.0F : 1e-20F); }

  void layout(Problem& p) {
    p.kv_layout = static_cast<KvLayout>(in(0, 2));
    if (coin()) {
      p.ragged_q = true;
      p.total_q = in(0, 100);
    }
    if (p.kv_layout == KvLayout::ragged) p.total_kv = in(0, 100);
    if (p.kv_layout != KvLayout::ragged) p.kv_lengths = coin();
    if (p.kv_layout == KvLayout::paged) {
      p.page_size = in(1, 16);
      p.num_pages = in(0, 50);
      p.pages_per_sequence = in(0, 50);
    }
  }

  void features(Problem& p) {
    if (coin()) p.scale = number();
    if (coin()) p.softcap = std::abs(number());
    p.causal = coin();
    p.alignment = static_cast<Alignment>(in(0, 1));
    if (coin()) p.window_left = in(0, 50);
    if (coin()) p.window_right = in(0, 50);
    p.mask = static_cast<MaskKind>(in(0, 2));
    if (p.mask == MaskKind::additive && coin()) p.mask_dtype = p.dtype;
    if (p.mask != MaskKind::none && coin()) p.mask_strides.batch = 0;
    if (p.mask != MaskKind::none && coin()) p.mask_strides.head = 0;
    p.alibi = coin();
    if (p.alibi && coin()) p.alibi_batch_stride = in(0, 9);
    p.sinks = coin();
    p.lse = coin();
  }

  void strides(Problem& p) {
    for (Strides* s : {&p.q, &p.k, &p.v, &p.o}) {
      if (in(0, 3) == 0) *s = {in(-999, 999), in(-999, 999), in(-999, 999), in(0, 9) == 0 ? 2 : 1};
    }
    if (p.mask != MaskKind::none && in(0, 3) == 0)
      p.mask_strides = {in(-9, 9), in(-9, 9), in(-9, 9), in(-9, 9)};
    if (p.lse && in(0, 3) == 0) p.lse_strides = {in(-9, 9), in(-9, 9), in(-9, 9)};
  }

  std::mt19937_64 random_;
};

TEST(ShapeSyntax, PrintingAndParsingIsTheIdentity) {
  Generator generator(42);
  for (int n = 0; n < 20'000; ++n) {
    const Problem p = generator.next();
    const std::string text = to_string(p);
    const Result<Problem> back = parse_problem(text);
    ASSERT_TRUE(back.ok()) << text << ": " << back.status().message();
    ASSERT_EQ(back.value(), p) << text << "\nbecame\n" << to_string(back.value());
    ASSERT_EQ(hash(back.value()), hash(p)) << text;
  }
}

struct BadShape {
  const char* text;
  const char* words;
};

class ShapeErrors : public testing::TestWithParam<BadShape> {};

TEST_P(ShapeErrors, NameTheToken) {
  const Result<Problem> result = parse_problem(GetParam().text);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::invalid_argument);
  EXPECT_NE(result.status().message().find(GetParam().words), std::string::npos) << result.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, ShapeErrors,
    testing::Values(
        BadShape{"", "names no number of queries"}, BadShape{"b1 h8 d64", "names no number of queries"},
        BadShape{"lq4", "names no number of keys"}, BadShape{"l4 f64", "token 'f64'"},
        BadShape{"l4 x7", "token 'x7'"}, BadShape{"l4x", "token 'l4x'"}, BadShape{"l", "token 'l'"},
        BadShape{"l4 h8/x", "token 'h8/x'"}, BadShape{"l4 b8/2", "token 'b8/2'"},
        BadShape{"l99999999999999999999", "token 'l99999999999999999999'"},
        BadShape{"l9223372036854775807k", "is not understood"}, BadShape{"l4 scale=", "token 'scale='"},
        BadShape{"l4 scale=1.5x", "token 'scale=1.5x'"}, BadShape{"l4 window=3", "token 'window=3'"},
        BadShape{"l4 window=3,4,5", "token 'window=3,4,5'"}, BadShape{"l4 mask=xyz", "token 'mask=xyz'"},
        BadShape{"l4 paged=4,5", "token 'paged=4,5'"}, BadShape{"l4 qs=1,2", "token 'qs=1,2'"},
        BadShape{"l4 ms=1,2,3", "token 'ms=1,2,3'"}, BadShape{"l4 zs=1,2,3", "token 'zs=1,2,3'"},
        BadShape{"l4 colour=red", "token 'colour=red'"}));

TEST(ShapeSyntax, NeverCrashesOnNoise) {
  std::mt19937 random(5);
  const std::string_view alphabet = "bhlqkdv0123456789=,/-. finskamrgp\x80";
  for (int n = 0; n < 50'000; ++n) {
    std::string text;
    for (auto left = random() % 24; left > 0; --left) text += alphabet[random() % alphabet.size()];
    const Result<Problem> result = parse_problem(text);
    if (result.ok()) {
      EXPECT_FALSE(to_string(result.value()).empty());
    } else {
      EXPECT_FALSE(result.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace saccade
