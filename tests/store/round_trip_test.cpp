#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <regex>

#include "support.h"

namespace saccade::store {
namespace {

Store open_for_writing(const std::filesystem::path& file) {
  Result<Store> store = Store::open(file, Access::write);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return std::move(store).value();
}

Store open_for_reading(const std::filesystem::path& file) {
  Result<Store> store = Store::open(file, Access::read);
  EXPECT_TRUE(store.ok()) << store.status().message();
  return std::move(store).value();
}

std::string begin(Store& store, const Run& run) {
  const Result<std::string> id = store.begin_run(run);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.value();
}

#define EXPECT_OK(call)                           \
  do {                                            \
    const Status status = (call);                 \
    EXPECT_TRUE(status.ok()) << status.message(); \
  } while (false)

/// Sets an environment variable for the length of a test; no value removes it.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) { value == nullptr ? unsetenv(name_) : setenv(name_, value, 1); }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(Store, CreatesFoldersAndFile) {
  const TemporaryFolder folder;
  const auto file = folder / "a/b/store.db";
  open_for_writing(file);
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_TRUE(open_for_reading(file).runs()->empty());
}

TEST(Store, KeepsARunWithEveryBit) {
  const TemporaryFolder folder;
  const std::string id = make_store(folder / "store.db", 3);
  const Result<WholeRun> whole = open_for_reading(folder / "store.db").load(id);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  auto expected = some_run();
  expected.id = id;
  EXPECT_TRUE(same(whole->run, expected));
  ASSERT_EQ(whole->measurements.size(), 3U);
  for (int n = 0; n < 3; ++n) EXPECT_TRUE(same(whole->measurements[n], some_measurement(n))) << n;
}

TEST(Store, KeepsAMeasurementWithoutTimesOrVerification) {
  const TemporaryFolder folder;
  const Measurement untimed{.shape = "s", .kernel = "k", .not_timed = "dim_v 3 is no multiple of 8"};
  Measurement summary_only = some_measurement(1);
  summary_only.samples.clear();
  Measurement failed = untimed;
  failed.verified = false;
  Store store = open_for_writing(folder / "store.db");
  const std::string id = begin(store, some_run());
  for (const Measurement& m : {untimed, summary_only, failed}) EXPECT_OK(store.add_measurement(id, m));
  const auto read = store.measurements(id);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 3U);
  EXPECT_TRUE(same(read->at(0), untimed));
  EXPECT_TRUE(same(read->at(1), summary_only));
  EXPECT_TRUE(same(read->at(2), failed));
}

TEST(Store, SameSeesEveryKindOfDifference) {
  const Measurement m = some_measurement(1);
  Measurement other = m;
  other.samples[1] = 0.0;  // was -0.0
  EXPECT_FALSE(same(m, other));
  other = m;
  other.seconds.p95 *= 2;
  EXPECT_FALSE(same(m, other));
  other = m;
  other.details["more"] = 1;
  EXPECT_FALSE(same(m, other));
  auto run = some_run();
  run.provenance["version"] = "0.2.0";
  EXPECT_FALSE(same(run, some_run()));
}

TEST(Store, TextIsNeverSql) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  const std::string id = begin(store, some_run());
  using std::string_literals::operator""s;
  const std::vector<std::string> hostile = {"'); DROP TABLE measurements; --",
                                            "形状 q=1×64 🙂 ü",
                                            "%_*?\"'`\\",
                                            "with\0a zero"s,
                                            "?1 :name @x $y",
                                            "not utf-8: \xff\xfe"};
  for (const std::string& text : hostile) {
    Measurement m = some_measurement(0);
    m.shape = m.kernel = m.config = text;
    m.details = {{text.substr(0, 3), "x"}};
    if (text.ends_with("\xfe")) m.details = Json::object();
    EXPECT_OK(store.add_measurement(id, m));
    const auto history = store.history({.shape = text, .kernel = text});
    ASSERT_TRUE(history.ok()) << history.status().message();
    ASSERT_EQ(history->size(), 1U) << text;
    EXPECT_TRUE(same(history->at(0).measurement, m)) << text;
    EXPECT_FALSE(store.find_run(text).ok());
    EXPECT_TRUE(store.history({.shape = text, .kernel = "' OR 1 = 1 --"})->empty());
  }
  EXPECT_FALSE(store.find_run("%").ok());
  EXPECT_FALSE(store.find_run("_").ok());
}

TEST(Store, ACommandLineThatIsNotUtf8StillMakesARun) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  auto run = some_run();
  run.command_line = "bench \xff";
  run.provenance["command_line"] = run.command_line;
  const auto loaded = store.load(begin(store, run));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->run.command_line, run.command_line);
  EXPECT_EQ(loaded->run.provenance["command_line"], "bench \xEF\xBF\xBD");
}

TEST(Store, RefusesNumbersThatCannotBeReadBack) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  const std::string id = begin(store, some_run());
  Measurement m = some_measurement(0);
  m.samples[7] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(store.add_measurement(id, m).ok());
  m = some_measurement(0);
  m.flops_ceiling = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(store.add_measurement(id, m).ok());
  m = some_measurement(0);
  m.samples.pop_back();
  EXPECT_FALSE(store.add_measurement(id, m).ok());
  EXPECT_TRUE(store.measurements(id)->empty());
}

TEST(Store, AFinishedRunStaysAsItIs) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  const std::string id = begin(store, some_run());
  EXPECT_EQ(store.load(id)->run.finished, "");
  EXPECT_OK(store.finish_run(id, "2026-01-02T03:04:06Z", {{"ceilings", {{"fma", 1.5}}}}));
  const auto finished = store.load(id)->run;
  EXPECT_TRUE(std::regex_match(finished.finished, std::regex("\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ")));
  EXPECT_EQ(finished.details["ceilings"]["fma"], 1.5);
  EXPECT_NE(store.add_measurement(id, some_measurement(0)).message().find("finished"), std::string::npos);
  EXPECT_FALSE(store.finish_run(id, "2026-01-02T03:04:06Z", Json::object()).ok());
  EXPECT_TRUE(same(store.load(id)->run, finished));
}

TEST(Store, KnowsNoRunThatWasNotBegun) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  EXPECT_NE(store.add_measurement("abc", some_measurement(0)).message().find("abc"), std::string::npos);
  EXPECT_FALSE(store.finish_run("abc", "2026-01-02T03:04:06Z", Json::object()).ok());
  EXPECT_FALSE(store.load("abc").ok());
  EXPECT_FALSE(store.find_run("").ok());
  EXPECT_FALSE(store.latest_run().ok());
  EXPECT_TRUE(store.measurements("abc")->empty());
}

TEST(Store, ListsRunsInTimeOrder) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  std::vector<std::string> ids;
  for (const char* started : {"2026-03-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"}) {
    auto run = some_run();
    run.started = started;
    ids.push_back(begin(store, run));
  }
  EXPECT_OK(store.add_measurement(ids[1], some_measurement(0)));
  const auto runs = store.runs();
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), 3U);
  EXPECT_EQ(runs->at(0).run.id, ids[1]);
  EXPECT_EQ(runs->at(0).measurements, 1);
  EXPECT_EQ(runs->at(1).run.id, ids[0]);
  EXPECT_EQ(runs->at(2).run.id, ids[2]);
  EXPECT_EQ(runs->at(2).measurements, 0);
  EXPECT_EQ(store.latest_run()->run.id, ids[2]);
}

TEST(Store, FindsARunByTheStartOfItsId) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  for (const char* id : {"ab", "abc1", "abc2", "xyz"}) {
    WholeRun whole{some_run(), {}};
    whole.run.id = id;
    ASSERT_TRUE(store.save(whole).ok());
  }
  EXPECT_EQ(store.find_run("x")->run.id, "xyz");
  EXPECT_EQ(store.find_run("abc2")->run.id, "abc2");
  EXPECT_EQ(store.find_run("ab")->run.id, "ab");  // exact, although others go on
  const auto ambiguous = store.find_run("abc");
  ASSERT_FALSE(ambiguous.ok());
  EXPECT_NE(ambiguous.status().message().find("2 runs"), std::string::npos);
  EXPECT_NE(ambiguous.status().message().find("abc1, abc2"), std::string::npos);
  EXPECT_FALSE(store.find_run("abc12").ok());
}

TEST(Store, HistoryFollowsAShapeOverRuns) {
  const TemporaryFolder folder;
  Store store = open_for_writing(folder / "store.db");
  for (const char* commit : {"c2", "c1", "c3"}) {
    auto run = some_run();
    run.commit = commit;
    run.started = std::string("2026-01-0") + commit[1] + "T00:00:00Z";
    run.machine = run.commit == "c3" ? "other" : "this";
    const std::string id = begin(store, run);
    for (const char* kernel : {"fast", "slow"}) {
      Measurement m = some_measurement(5);
      m.kernel = kernel;
      EXPECT_OK(store.add_measurement(id, m));
    }
    EXPECT_OK(store.add_measurement(id, some_measurement(6)));
  }
  const std::string shape = some_measurement(5).shape;
  const auto all = store.history({.shape = shape});
  ASSERT_TRUE(all.ok()) << all.status().message();
  std::vector<std::string> order;
  for (const HistoryEntry& entry : all.value()) order.push_back(entry.run.commit + entry.measurement.kernel);
  EXPECT_EQ(order, (std::vector<std::string>{"c1fast", "c1slow", "c2fast", "c2slow", "c3fast", "c3slow"}));
  EXPECT_EQ(store.history({.shape = shape, .kernel = "slow"})->size(), 3U);
  EXPECT_EQ(store.history({.shape = shape, .kernel = "slow", .machine = "this"})->size(), 2U);
  EXPECT_TRUE(store.history({.shape = "another"})->empty());
}

TEST(Store, SavesAWholeRunOnce) {
  const TemporaryFolder folder;
  const std::string id = make_store(folder / "from.db", 4);
  const WholeRun whole = open_for_reading(folder / "from.db").load(id).value();
  Store store = open_for_writing(folder / "to.db");
  EXPECT_TRUE(store.save(whole).value());
  EXPECT_FALSE(store.save(whole).value());

  WholeRun changed = whole;
  changed.measurements[2].samples[0] *= 2;
  EXPECT_NE(store.save(changed).status().message().find(id), std::string::npos);
  changed = whole;
  changed.run.id = "another";
  changed.measurements[3].flops = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(store.save(changed).ok());

  EXPECT_EQ(store.runs()->size(), 1U);
  const WholeRun read = store.load(id).value();
  EXPECT_TRUE(same(read.run, whole.run));
  ASSERT_EQ(read.measurements.size(), 4U);
  for (std::size_t n = 0; n < 4; ++n) EXPECT_TRUE(same(read.measurements[n], whole.measurements[n]));
}

TEST(Store, OpensNamesThatSqliteGivesAMeaning) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  for (const char* name : {":memory:", "file:x?mode=memory", "a%20b#c?d.db"}) {
    make_store(name, 1);
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
    EXPECT_EQ(open_for_reading(name).runs()->size(), 1U) << name;
  }
  std::filesystem::current_path(before);
}

TEST(DescribeRun, NamesWhatIsMissing) {
  const Json whole = some_run().provenance;
  for (const char* key : {"date", "commit", "command_line", "dirty", "seed"}) {
    for (const bool absent : {true, false}) {
      Json provenance = whole;
      absent ? static_cast<void>(provenance.erase(key)) : static_cast<void>(provenance[key] = -1.5);
      const auto run = describe_run(provenance, "m");
      ASSERT_FALSE(run.ok()) << key;
      EXPECT_NE(run.status().message().find(key), std::string::npos);
    }
  }
  EXPECT_FALSE(describe_run(Json::array(), "m").ok());
  EXPECT_EQ(some_run().seed, 0xfedcba9876543210U);
}

TEST(DefaultPath, FollowsTheEnvironment) {
  const Environment home("HOME", "/home/somebody");
  {
    const Environment data("XDG_DATA_HOME", "/data");
    EXPECT_EQ(default_path().value(), "/data/saccade/store.db");
  }
  for (const char* ignored : {"relative/path", "", static_cast<const char*>(nullptr)}) {
    const Environment data("XDG_DATA_HOME", ignored);
    EXPECT_EQ(default_path().value(), "/home/somebody/.local/share/saccade/store.db");
  }
  const Environment no_data("XDG_DATA_HOME", nullptr);
  const Environment no_home("HOME", nullptr);
  EXPECT_FALSE(default_path().ok());
}

}  // namespace
}  // namespace saccade::store
