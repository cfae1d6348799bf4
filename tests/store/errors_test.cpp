// What can be wrong with a file: every case is a sentence, and the file stays as it was.
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "store/database.h"
#include "support.h"

namespace saccade::store {
namespace {

namespace fs = std::filesystem;
using std::chrono_literals::operator""ms;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// The sentence that opening fails with; empty when it does not.
std::string open_error(const fs::path& file, Access access, std::chrono::milliseconds patience = 100ms) {
  return Store::open(file, access, patience).status().message();
}

/// Opens the file both ways, expects the same words both times, and the same bytes afterwards.
void expect_refused(const fs::path& file, const testing::Matcher<std::string>& sentence) {
  const std::string before = read_file(file);
  for (const Access access : {Access::read, Access::write}) {
    const std::string said = open_error(file, access);
    EXPECT_THAT(said, sentence);
    EXPECT_THAT(said, HasSubstr(file.string()));
  }
  EXPECT_TRUE(read_file(file) == before);
}

void change_by_sql(const fs::path& file, const std::string& sql) {
  const Result<Database> database = Database::open(file, Access::write, 1000ms);
  ASSERT_TRUE(database.ok()) << database.status().message();
  const Status changed = database->execute(sql);
  ASSERT_TRUE(changed.ok()) << changed.message();
}

TEST(StoreErrors, NothingThere) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder / "store.db", Access::read), HasSubstr("nothing has been stored there yet"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_THAT(open_error("", Access::write), HasSubstr("empty"));
}

TEST(StoreErrors, AFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder.path(), Access::write), HasSubstr("is a folder"));
  EXPECT_THAT(open_error(folder.path(), Access::read), HasSubstr("is a folder"));
}

TEST(StoreErrors, AFileWhereAFolderShouldBe) {
  const TemporaryFolder folder;
  write_file(folder / "file", "text");
  EXPECT_THAT(open_error(folder / "file/store.db", Access::write), HasSubstr("cannot be created"));
}

TEST(StoreErrors, NotADatabase) {
  const TemporaryFolder folder;
  write_file(folder / "notes.txt", std::string(5000, 'x'));
  expect_refused(folder / "notes.txt", HasSubstr("no SQLite database"));
  for (const std::size_t size : {1U, 15U, 16U, 100U, 511U, 512U}) {  // SQLite would overwrite the short ones
    write_file(folder / "short.txt", std::string(size, 'x'));
    expect_refused(folder / "short.txt", HasSubstr("no SQLite database"));
  }
  write_file(folder / "magic", std::string("SQLite format 3\0", 16) + std::string(5000, 'x'));
  expect_refused(folder / "magic", HasSubstr("no SQLite database"));
}

TEST(StoreErrors, ADatabaseOfAnotherProgram) {
  const TemporaryFolder folder;
  change_by_sql(folder / "other.db", "CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  expect_refused(folder / "other.db", HasSubstr("another program"));
  change_by_sql(folder / "empty.db", "PRAGMA application_id = 7; VACUUM");
  expect_refused(folder / "empty.db", HasSubstr("another program"));
}

TEST(StoreErrors, AnEmptyFileIsTakenForWritingOnly) {
  const TemporaryFolder folder;
  write_file(folder / "store.db", "");
  EXPECT_THAT(open_error(folder / "store.db", Access::read), HasSubstr("schema version 0"));
  EXPECT_EQ(fs::file_size(folder / "store.db"), 0U);
  EXPECT_EQ(open_error(folder / "store.db", Access::write), "");
}

TEST(StoreErrors, ANewerSchema) {
  const TemporaryFolder folder;
  make_store(folder / "store.db", 2);
  change_by_sql(folder / "store.db", "PRAGMA user_version = 99");
  expect_refused(folder / "store.db",
                 AllOf(HasSubstr("version 99"), HasSubstr("version 1 "), HasSubstr("newer")));
  change_by_sql(folder / "store.db", "PRAGMA user_version = 1");
  EXPECT_EQ(Store::open(folder / "store.db", Access::read)->latest_run()->measurements, 2);
}

TEST(StoreErrors, Truncated) {
  const TemporaryFolder folder;
  make_store(folder / "store.db", 50);
  const std::string whole = read_file(folder / "store.db");
  const std::vector<std::size_t> sizes = {100, 511, 4095, whole.size() / 2, whole.size() - 4096};
  for (const std::size_t size : sizes) {
    SCOPED_TRACE(size);
    write_file(folder / "store.db", whole.substr(0, size));
    expect_refused(folder / "store.db", HasSubstr("damaged"));
  }
}

TEST(StoreErrors, OverwrittenPages) {
  const TemporaryFolder folder;
  const std::string id = make_store(folder / "store.db", 50);
  const std::string whole = read_file(folder / "store.db");
  constexpr std::size_t kPage = 4096;
  ASSERT_GT(whole.size(), 20 * kPage);
  int seen_by_reading = 0;
  for (std::size_t page = 1; page < 20; ++page) {
    std::string damaged = whole;
    damaged.replace(page * kPage, kPage, std::string(kPage, '\x5a'));
    write_file(folder / "store.db", damaged);
    EXPECT_THAT(open_error(folder / "store.db", Access::write), HasSubstr("damaged")) << page;
    const Result<Store> store = Store::open(folder / "store.db", Access::read);
    if (store.ok()) {
      EXPECT_THAT(store->check().message(), HasSubstr("damaged")) << page;
      const auto measurements = store->measurements(id);
      if (!measurements.ok()) {
        EXPECT_THAT(measurements.status().message(), HasSubstr("damaged")) << page;
        ++seen_by_reading;
      }
    }
    EXPECT_TRUE(read_file(folder / "store.db") == damaged) << page;
  }
  EXPECT_GT(seen_by_reading, 0);
}

TEST(StoreErrors, RowsThatThisProgramNeverWrites) {
  const TemporaryFolder folder;
  const std::string id = make_store(folder / "store.db", 1);
  const std::string whole = read_file(folder / "store.db");
  for (const char* sql :
       {"UPDATE measurements SET samples = x'010203'", "UPDATE measurements SET samples = zeroblob(16)",
        "UPDATE measurements SET details = '{'", "UPDATE runs SET provenance = 'x'",
        "DROP TABLE measurements"}) {
    write_file(folder / "store.db", whole);
    change_by_sql(folder / "store.db", sql);
    const Result<Store> store = Store::open(folder / "store.db", Access::read);
    ASSERT_TRUE(store.ok()) << store.status().message();
    EXPECT_THAT(store->load(id).status().message(), HasSubstr("damaged")) << sql;
  }
}

TEST(StoreErrors, LockedByAnotherProcess) {
  const TemporaryFolder folder;
  const auto file = folder / "store.db";
  const std::string id = make_store(file, 1);
  Result<Store> store = Store::open(file, Access::write, 50ms);
  ASSERT_TRUE(store.ok());
  const Result<Database> other = Database::open(file, Access::write, 50ms);
  ASSERT_TRUE(other.ok());
  const auto locked = AllOf(HasSubstr("locked"), HasSubstr("0.05s"), HasSubstr(file.string()));
  {
    Transaction writing(other.value(), Access::write);
    ASSERT_TRUE(writing.begun().ok());
    EXPECT_THAT(store->begin_run(some_run()).status().message(), locked);
    EXPECT_THAT(store->add_measurement(id, some_measurement(1)).message(), locked);
    EXPECT_THAT(store->finish_run(id, "2026-01-02T03:04:06Z", Json::object()).message(), locked);
    EXPECT_EQ(store->measurements(id)->size(), 1U);  // readers do not wait
  }
  EXPECT_TRUE(store->add_measurement(id, some_measurement(1)).ok());
  EXPECT_EQ(store->measurements(id)->size(), 2U);
}

TEST(StoreErrors, LockedWhenItIsOpened) {
  const TemporaryFolder folder;
  const auto file = folder / "store.db";
  make_store(file, 1);
  {
    const Result<Database> other = Database::open(file, Access::write, 50ms);
    ASSERT_TRUE(other->execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").ok());
    EXPECT_THAT(open_error(file, Access::read), HasSubstr("locked"));
    EXPECT_THAT(open_error(file, Access::write), HasSubstr("locked"));
  }
  EXPECT_EQ(open_error(file, Access::write), "");
}

TEST(StoreErrors, AReadOnlyFile) {
  const TemporaryFolder folder;
  const auto file = folder / "store.db";
  make_store(file, 2);
  hand_over(folder.path());
  hand_over(file);
  fs::permissions(file, fs::perms::owner_read);
  EXPECT_THAT(in_child([&] {
                give_up_root();
                return open_error(file, Access::write);
              }),
              HasSubstr("read-only"));
  EXPECT_EQ(in_child([&] {
              give_up_root();
              return std::to_string(Store::open(file, Access::read)->latest_run()->measurements);
            }),
            "2");
}

TEST(StoreErrors, AReadOnlyFolder) {
  const TemporaryFolder folder;
  const auto file = folder / "a store.db";
  const std::string id = make_store(file, 2);
  hand_over(folder.path());
  hand_over(file);
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const std::string before = read_file(file);
  EXPECT_THAT(in_child([&] {
                give_up_root();
                return open_error(file, Access::write);
              }),
              AllOf(HasSubstr("a store.db"), HasSubstr("read-only")));
  EXPECT_EQ(in_child([&] {
              give_up_root();
              const Result<Store> store = Store::open(file, Access::read);
              if (!store.ok()) return store.status().message();
              return std::to_string(store->measurements(id)->size());
            }),
            "2");
  EXPECT_THAT(in_child([&] {
                give_up_root();
                return open_error(folder / "new.db", Access::write);
              }),
              AllOf(HasSubstr("new.db cannot be created"), HasSubstr("read-only")));
  EXPECT_THAT(in_child([&] {
                give_up_root();
                return open_error(folder / "new/store.db", Access::write);
              }),
              HasSubstr("cannot be created: Permission denied"));
  EXPECT_TRUE(read_file(file) == before);
}

TEST(StoreErrors, AStoreOpenedForReadingIsNotWritten) {
  const TemporaryFolder folder;
  const std::string id = make_store(folder / "store.db", 1);
  Result<Store> store = Store::open(folder / "store.db", Access::read);
  ASSERT_TRUE(store.ok());
  EXPECT_THAT(store->begin_run(some_run()).status().message(), HasSubstr("read-only"));
  EXPECT_THAT(store->add_measurement(id, some_measurement(1)).message(), HasSubstr("read-only"));
}

/// Writes until it fails. Says how many measurements were written and read back afterwards, and why it ended.
std::string write_until_full(const fs::path& file) {
  std::string id;
  int written = 0;
  std::string why;
  {
    Result<Store> store = Store::open(file, Access::write);
    if (!store.ok()) return store.status().message();
    id = store->begin_run(some_run()).value();
    for (; why.empty() && written < 100'000; written += static_cast<int>(why.empty())) {
      why = store->add_measurement(id, some_measurement(written)).message();
    }
  }
  const Result<Store> store = Store::open(file, Access::read);
  if (!store.ok()) return store.status().message();
  const auto read = store->measurements(id);
  if (!read.ok()) return read.status().message();
  if (const Status checked = store->check(); !checked.ok()) return checked.message();
  for (std::size_t n = 0; n < read->size(); ++n) {
    if (!same(read->at(n), some_measurement(static_cast<int>(n)))) return "another measurement";
  }
  return (written > 10 && read->size() == static_cast<std::size_t>(written) ? "all kept; " : "some lost; ") +
         why;
}

TEST(StoreErrors, AFileSizeLimit) {
  const TemporaryFolder folder;
  EXPECT_THAT(in_child([&] {
                std::signal(SIGXFSZ, SIG_IGN);
                const rlimit limit{.rlim_cur = 300'000, .rlim_max = 300'000};
                if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return std::string("no limit");
                return write_until_full(folder / "store.db");
              }),
              AllOf(StartsWith("all kept; "), HasSubstr("limit on file sizes")));
}

/// In a child: puts a file system of 600 KiB there, which ends with the child. Users other than root need a
/// name space in which they are root. False where this is not allowed.
bool mount_small(const fs::path& folder) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (user != 0) {
    write_file("/proc/self/uid_map", fmt::format("0 {} 1", user));
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/gid_map", fmt::format("0 {} 1", group));
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", folder.c_str(), "tmpfs", 0, "size=600k") == 0;
}

TEST(StoreErrors, AFullDisk) {
  const TemporaryFolder folder;
  const std::string said = in_child(
      [&] { return mount_small(folder.path()) ? write_until_full(folder / "store.db") : "no rights"; });
  if (said == "no rights") GTEST_SKIP() << "this process may not mount a small file system";
  EXPECT_THAT(said, AllOf(StartsWith("all kept; "), HasSubstr("disk is full")));
}

}  // namespace
}  // namespace saccade::store
