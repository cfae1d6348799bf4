// Which instance of sm90 the planner takes, and what it says of those that it does not take.
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "cuda/kernels.h"
#include "verify/emulated.h"

namespace saccade {
namespace {

// What was fastest on an H200 (docs/kernels/sm90.md).
TEST(Sm90Planner, TakesTheFastestOnTheMeasuredChip) {
  ASSERT_EQ(emulated_machine().multiprocessors, 132);
  const std::pair<const char*, const char*> choices[] = {
      {"b1 h8 l64 d64", "stages=1 general=0 warp_rows=8"},
      {"b1 h8 l128 d64 causal", "stages=1 general=0 warp_rows=8"},
      {"b1 h32 l128 d64", "stages=1 general=0 warp_rows=8"},
      {"b8 h8 l128 d64", "stages=1 general=0 warp_rows=8"},
      {"b4 h32 l128 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b1 h8 l192 d64", "stages=4 general=0 warp_rows=8"},
      {"b1 h8 l384 d64", "stages=4 general=0 warp_rows=8"},
      {"b1 h8 l384 d64 causal", "stages=4 general=0 warp_rows=8"},
      {"b1 h8 l448 d64", "row_groups=1 key_groups=2 cluster=2 tile_keys=128 stages=1"},
      {"b1 h8 l512 d64", "row_groups=1 key_groups=2 cluster=2 tile_keys=128 stages=1"},
      {"b1 h8 l512 d64 causal", "row_groups=1 key_groups=2 cluster=2 tile_keys=128 stages=1"},
      {"b1 h4 l512 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h1 l512 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h2 l1024 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h1 l2048 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h8 lq1 lk512 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h8 lq1 lk4096 d64", "cluster=8 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b2 h8 lq1 lk8192 d64", "cluster=4 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h32 lq1 lk4096 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b1 h4 l1024 d64", "row_groups=1 key_groups=2 cluster=2 tile_keys=64"},
      {"b1 h4 l1024 d64 causal", "row_groups=1 key_groups=2 cluster=2 tile_keys=64"},
      {"b1 h2 l2048 d64", "row_groups=1 key_groups=2 cluster=2 tile_keys=64"},
      {"b2 h8 l512 d64", "row_groups=1 key_groups=2 cluster=1 tile_keys=64 stages=6"},
      {"b2 h8 l512 d64 causal", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h8 l1024 d64", "row_groups=1 key_groups=2 cluster=1 tile_keys=64 stages=6"},
      {"b1 h8 l640 d64", "row_groups=1 key_groups=2 cluster=1 tile_keys=64 stages=6"},
      {"b1 h6 l1024 d64", "row_groups=1 key_groups=2 cluster=1 tile_keys=64 stages=6"},
      {"b1 h12 l512 d64", "row_groups=1 key_groups=2 cluster=1 tile_keys=64 stages=6"},
      {"b1 h8 l1024 d64 causal", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h8 l2048 d64", "row_groups=2 key_groups=2 cluster=1"},
      {"b1 h8 l2048 d64 causal", "row_groups=2 key_groups=1 cluster=2"},
      {"b1 h4 l4096 d64 causal", "row_groups=2 key_groups=1 cluster=2"},
      {"b1 h4 l2048 d64 causal", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h16 l1024 d64 causal", "row_groups=2 key_groups=1 cluster=2"},
      {"b2 h8 l1024 d64 causal", "row_groups=2 key_groups=1 cluster=2"},
      {"b1 h16 l512 d64 causal", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h8 l768 d64 causal", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h32 l1024 d64 causal", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b4 h16 l512 d64", "row_groups=4 key_groups=1"},
      {"b4 h16 l512 d64 causal", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b4 h16 l512 d64 window=inf,0", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b4 h12 l1024 d64 causal", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b1 h12 l1024 d64 causal", "row_groups=2 key_groups=1 cluster=2"},
      {"b8 h16 l1024 d64 causal", "row_groups=4 key_groups=1"},
      {"b64 h12 l128 d64 causal", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b64 h12 l128 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b256 h12 l64 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b32 h12 l64 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b128 h12 l32 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b8 h12 l256 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b16 h12 l256 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b32 h12 l197 d64", "row_groups=4 key_groups=1"},
      {"b2 h12 l1024 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b2 h20 l1024 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b2 h20 lq1024 lk77 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b3 h8 l512 d64", "row_groups=2 key_groups=2"},
      {"b5 h8 l384 d64", "row_groups=2 key_groups=2"},
      {"b256 h32 lq1 lk128 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b128 h16 lq1 lk64 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b64 h16 lq1 lk512 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b32 h32/8 lq1 lk1024 d64", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b8 h16 l2048 d64", "row_groups=4 key_groups=1"},
      {"b8 h16 l2048 d64 causal", "row_groups=4 key_groups=1"},
      {"b1 h16 l16384 d64", "row_groups=4 key_groups=1"},
      {"b1 h16 l512 d128", "row_groups=1 key_groups=2"},
      {"b1 h16 l512 d128 causal", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h8 l512 d128", "row_groups=1 key_groups=1 cluster=2"},
      {"b1 h4 l512 d128", "cluster=2 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h1 l512 d128", "cluster=4 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h2 l1024 d128", "cluster=2 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h32/8 lq1 lk512 d128", "cluster=4 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h32/8 lq1 lk4096 d128", "cluster=8 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h32/8 lq1 lk65536 d128", "cluster=8 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h8 lq64 lk2048 d128", "cluster=4 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b2 h32/8 lq1 lk4096 d128", "cluster=4 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b4 h32/8 lq1 lk2048 d128", "cluster=2 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b16 h32/8 lq1 lk4096 d128", "cluster=1 tile_keys=64 stages=3 general=0 warp_rows=8"},
      {"b1 h8 l128 d128", "cluster=1 tile_keys=64 stages=3 general=0 warp_rows=8"},
      {"b1 h8 l256 d128", "cluster=2 tile_keys=64 stages=2 general=0 warp_rows=8"},
      {"b1 h8 lq1 lk64 d128", "cluster=1 tile_keys=64 stages=3 general=0 warp_rows=8"},
      {"b16 h8 lq1 lk4096 d64", "cluster=1 tile_keys=64 stages=4 general=0 warp_rows=8"},
      {"b64 h32 l64 d128", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b64 h32 lq1 lk128 d128", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b16 h32 lq1 lk512 d128", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b64 h32/8 lq1 lk512 d128", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b4 h16 l256 d128", "row_groups=2 key_groups=1"},
      {"b1 h32/8 l512 d128 causal", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b3 h16 l384 d128", "row_groups=3 key_groups=1"},
      {"b8 h32 l256 d128 causal", "row_groups=2 key_groups=1"},
      {"b4 h32 l1024 d128", "row_groups=2 key_groups=1"},
      {"b1 h32 l1024 d128", "row_groups=2 key_groups=1"},
      {"b1 h32 l1024 d128 causal", "row_groups=2 key_groups=1"},
      {"b8 h16 l2048 d128", "row_groups=3 key_groups=1"},
      {"b8 h16 l2048 d128 causal", "row_groups=3 key_groups=1"},
      {"b1 h16 l16384 d128 causal", "row_groups=3 key_groups=1"},
      {"b64 h8 lq1 lk1024 d64", "cluster=1 tile_keys=64 stages=4 general=0 warp_rows=8"},
      {"b1 h32/8 lq1 lk65536 d128", "warp_rows=8 ragged=0 split=1 "},
      {"b1 h32/4 lq1 lk65536 d128",
       "cluster=8 tile_keys=64 stages=2 general=0 warp_rows=8 ragged=0 split=3 "},
      {"b1 h32/1 lq1 lk65536 d128",
       "cluster=8 tile_keys=64 stages=2 general=0 warp_rows=8 ragged=0 split=13 "},
      {"b1 h1 lq1 lk65536 d128 window=500,0 br",
       "cluster=8 tile_keys=64 stages=2 general=0 warp_rows=8 ragged=0 split=1 "},
      {"b1 h1 lq8 lk65536 d128 causal", "split=1 "},
      {"b1 h1 lq1 lk8192 d64", "cluster=8 tile_keys=128 stages=2 general=0 warp_rows=8 ragged=0 split=4 "},
      {"b64 h8 lq1 lk1024 d64 window=100,0 br", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      {"b1 h8 l16384 d256", "dim=256"},
      {"b1 h8 l512 d256", "dim=256 row_groups=1 key_groups=1 cluster=2"},
      {"b4 h8 l128 d256", "dim=256 row_groups=1 key_groups=1 cluster=2"},
      {"b1 h8 l1024 d256 causal", "dim=256 row_groups=1 key_groups=1 cluster=2"},
      {"b1 h12 l512 d256 causal", "dim=256 row_groups=1 key_groups=1 cluster=2"},
      {"b1 h16 l512 d256", "dim=256 row_groups=2"},
      {"b1 h8 l1024 d256", "dim=256 row_groups=2"},
      {"b1 h16 lq1 lk8192 d256", "dim=256 row_groups=1 key_groups=1 cluster=4"},
      {"b1 h8 lq1 lk2048 d256", "dim=256 row_groups=1 key_groups=1 cluster=8"},
      {"b4 h8 lq1 lk4096 d256", "dim=256 row_groups=1 key_groups=1 cluster=2"},
      {"b1 h16 lq1 lk8192 d192", "dim=256 row_groups=1 key_groups=1 cluster=4"},
      {"b1 h8 l512 d192", "dim=192 row_groups=1 key_groups=1 cluster=2"},
      {"b2 h8 l256 d160", "dim=192 row_groups=1 key_groups=1 cluster=2"},
      {"b2 h8 lq256 lk77 d160", "dim=192 row_groups=1 key_groups=1 cluster=2"},
      {"b1 h16 l512 d192", "dim=192 row_groups=2"},
      {"b1 h8 l512 d96", "dim=128 row_groups=1"},
      {"b2 h16 l1024 d96", "dim=96 row_groups=2"},
      {"b4 h16 l2048 d96 causal", "dim=96 row_groups=3"},
      {"b2 h16 l1024 d80", "dim=80 row_groups=2"},
      {"b2 h16 l1024 d72", "dim=80 row_groups=2"},
      {"b8 h16 l576 d72", "dim=80 row_groups=3"},
      {"b4 h32 l1024 d80 causal", "dim=80 row_groups=3"},
      {"b2 h8 l4096 d192", "dim=192"},
      {"b2 h8 l4096 dqk192 dv128", "dim=192"},
      {"b1 h8 l2048 d64 sinks",
       "dim=64 row_groups=2 key_groups=1 cluster=1 tile_keys=128 stages=2 general=1"},
      {"b2 h16 l2048 d128 mask=qk", "tile_keys=96 stages=2 general=1"},
      {"b2 h8 l2048 d136 softcap=30 causal",
       "dim=192 row_groups=2 key_groups=1 cluster=1 tile_keys=96 stages=2 general=1"},
      {"b8 h16 l2048 d128 varlen", "dim=128 row_groups=3"},
      {"b8 h16 l2048 d128 varlen causal", "dim=128 row_groups=3"},
      {"b8 h16 l2048 d64 varlen", "dim=64 row_groups=3"},
      {"b64 h16 l256 d64 varlen", "dim=64 row_groups=1 key_groups=1"},
      {"b64 h16 l256 d128 varlen causal", "dim=128 row_groups=1 key_groups=1"},
      {"b1 h8 l512 d64 varlen", "warp_rows=8 ragged=1"},
      {"b16 h32/8 lq1 lk4096 d128 kvlens", "stages=3 general=0 warp_rows=8 ragged=1"},
      {"b8 h8 l2048 d256 varlen", "dim=256 row_groups=2"}};
  for (const auto& [shape, config] : choices) {
    const Problem problem = parse_problem(std::string(shape) + " f16").value();
    ASSERT_FALSE(find_emulated("sm90")->refusal(problem, emulated_machine(), false)) << shape;
    const std::string found = find_emulated("sm90")->prepare(problem, emulated_machine(), "")->config;
    EXPECT_NE(found.find(config), std::string::npos) << shape << ": " << found;
  }
}

// What was not measured, and stands to reason.
TEST(Sm90Planner, TakesWhatIsLikelyToBeFast) {
  const std::pair<const char*, const char*> choices[] = {
      // One tile of keys would give few rows a base.
      {"b1 h8 l100 d64 window=9,0", "stages=4 general=0 warp_rows=8"},
      {"b1 h8 l512 d64 window=40,0", "cluster=1 tile_keys=64 stages=4 general=0 warp_rows=8"},
      // Twice as many multiprocessors, as at b1 h2 l1024.
      {"b1 h8 lq256 lk8192 d64", "cluster=2 tile_keys=128 stages=2 general=0 warp_rows=8"},
      {"b64 h16 l32 d128", "row_groups=1 key_groups=1 cluster=1 tile_keys=64"},
      // Tiles of queries are full, so half of every product would be for nothing.
      {"b8 h16 lq4096 lk64 d64", "warp_rows=16"}};
  for (const auto& [shape, config] : choices) {
    const Problem problem = parse_problem(std::string(shape) + " f16").value();
    const std::string found = find_emulated("sm90")->prepare(problem, emulated_machine(), "")->config;
    EXPECT_NE(found.find(config), std::string::npos) << shape << ": " << found;
  }
}

TEST(Sm90Planner, SaysWhyNot) {
  const Kernel& kernel = *find_emulated("sm90");
  const auto reason = [&](const std::string& shape, const Machine& machine = emulated_machine()) {
    return kernel.refusal(parse_problem(shape).value(), machine, false).value_or("");
  };
  EXPECT_EQ(reason("b1 h8 l512 d64 f16"), "");
  EXPECT_EQ(reason("b1 h32/8 lq1 lk4096 d256 f16"), "");
  for (const auto& [shape, part] : {std::pair{"l512 d64 f32", "f16 and bf16"},
                                    {"l512 d256 f16 softcap=5", "softcap"},
                                    {"b2 l512 d64 f16 paged=16 kvlens", "pages"},
                                    {"b2 l512 d64 f16 varlen sinks", "one length"},
                                    {"b2 h1 l64 d8 f16 varlen-q=70 ks=1000,0,24", "rows apart"},
                                    {"b2 h1 l64 d8 f16 kvlens vs=1024,0,8", "rows apart"},
                                    {"b2 h4 lq5 lk1 d64 f16 kvlens ks=256,64,1 vs=256,64,1", "rows apart"},
                                    {"b1 h1 l2 d8 f16 varlen ks=0,0,4294967296", "8 GiB"},
                                    {"l512 d64 f16 scale=-1", "negative"},
                                    {"l512 d60 f16", "multiples of 8"},
                                    {"l512 d264 f16", "up to 256"},
                                    {"lq0 lk512 d64 f16", "empty"},
                                    {"b4 h32 lq512 lk64 d64 f16 softcap=9", "sm80 begins and ends sooner"},
                                    {"b1 h8 l1024 d64 f16 mask=qk", "reading of the mask"},
                                    {"b1 h64/8 lq1 lk4096 d64 f16 sinks", "keys of so few rows"},
                                    {"b1 h8 lq1 lk4096 d64 f16 sinks", "general instances do not"}}) {
    EXPECT_NE(reason(shape).find(part), std::string::npos) << shape << ": " << reason(shape);
  }
  for (const int capability : {80, 89, 100}) {
    Machine other = emulated_machine();
    other.compute_capability = capability;
    EXPECT_NE(reason("l512 d64 f16", other).find("Hopper"), std::string::npos);
  }
  Machine odd = emulated_machine();
  odd.pointer_alignment = 2;
  EXPECT_NE(reason("l512 d64 f16", odd).find("16 bytes"), std::string::npos);
  Problem expanded = parse_problem("b1 h8 l512 d64 f16").value();
  expanded.k.head = 0;
  EXPECT_NE(kernel.reject(expanded, emulated_machine()).value_or("").find("k has a stride"),
            std::string::npos);
  expanded.k.head = expanded.q.head + 1;
  EXPECT_NE(kernel.reject(expanded, emulated_machine()).value_or("").find("k has a stride"),
            std::string::npos);
  // More heads than a grid has along its second dimension: an instance whose blocks stay.
  const Problem wide = parse_problem("b1 h70000 l64 d64 f16").value();
  EXPECT_NE(kernel.prepare(wide, emulated_machine(), "")->config.find("key_groups=1 cluster=1"),
            std::string::npos);
  // More tiles of queries than that: likewise.
  const Problem tall = parse_problem("b1 h1 l4200000 d64 f16").value();
  EXPECT_NE(kernel.prepare(tall, emulated_machine(), "")->config.find("key_groups=1 cluster=1"),
            std::string::npos);
  EXPECT_EQ(reason("b1 h8 l1024 d64 f16 softcap=9"), "");
  EXPECT_NE(
      kernel.prepare(parse_problem("b1 h8 l2048 d64 f16 sinks").value(), emulated_machine(), "overlap=1")
          .status()
          .message()
          .find("overlap=1 does not go"),
      std::string::npos);
  EXPECT_NE(
      kernel.prepare(parse_problem("b2 h8 l512 d64 f16 varlen").value(), emulated_machine(), "overlap=2")
          .status()
          .message()
          .find("overlap=2 does not go"),
      std::string::npos);
  EXPECT_NE(kernel.prepare(wide, emulated_machine(), "")->config.find("overlap=2"), std::string::npos);
  EXPECT_NE(kernel.prepare(wide, emulated_machine(), "overlap=0")->config.find("overlap=0"),
            std::string::npos);
  const Problem sinks = parse_problem("b1 h8 l2048 d64 f16 sinks").value();
  EXPECT_NE(kernel.prepare(sinks, emulated_machine(), "")->config.find("overlap=0"), std::string::npos);
  const Result<Prepared> apart =
      kernel.prepare(parse_problem("b1 h8 l512 d64 f16").value(), emulated_machine(), "split=3");
  EXPECT_NE(apart.status().message().find("split=3 does not go"), std::string::npos)
      << apart.status().message();
  const Result<Prepared> tall_and_apart = kernel.prepare(
      parse_problem("b1 h1 lq140000 lk512 d64 f16").value(), emulated_machine(),
      "row_groups=1 key_groups=2 cluster=8 tile_keys=128 stages=2 warp_rows=8 ragged=0 split=16");
  EXPECT_NE(tall_and_apart.status().message().find("a grid has 65535"), std::string::npos)
      << tall_and_apart.status().message();
  const Result<Prepared> unknown =
      kernel.prepare(parse_problem("l512 d64 f16").value(), emulated_machine(), "row_groups=7");
  EXPECT_NE(unknown.status().message().find("row_groups=7"), std::string::npos) << unknown.status().message();
  const Result<Prepared> narrow =
      kernel.prepare(parse_problem("l512 d128 f16").value(), emulated_machine(),
                     "dim=64 row_groups=4 key_groups=1 cluster=1 tile_keys=64 stages=4 warp_rows=16");
  EXPECT_NE(narrow.status().message().find("up to 64"), std::string::npos) << narrow.status().message();
  const Result<Prepared> many =
      kernel.prepare(parse_problem("l513 d64 f16").value(), emulated_machine(),
                     "row_groups=1 key_groups=2 cluster=2 tile_keys=128 stages=1 warp_rows=16");
  EXPECT_NE(many.status().message().find("up to 512 keys"), std::string::npos) << many.status().message();
}

}  // namespace
}  // namespace saccade
