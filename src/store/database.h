// SQLite's handles with owners, and its errors as sentences. Only this room sees it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <saccade/status.h>

struct sqlite3;
struct sqlite3_stmt;

namespace saccade::store {

class Statement;

enum class Access { read, write };

/// One connection. Not for several threads at once, and never across a fork.
class Database {
 public:
  /// Opens the file, or creates it when writing is asked for. Waits for other processes up to `patience` in
  /// every later call.
  [[nodiscard]] static Result<Database> open(const std::filesystem::path& file, Access access,
                                             std::chrono::milliseconds patience);

  /// The statement remembers the first thing that goes wrong, so that binding and stepping need no checks in
  /// between.
  [[nodiscard]] Statement prepare(std::string_view sql) const;
  /// Runs one or more statements whose rows nobody needs.
  [[nodiscard]] Status execute(const std::string& sql) const;

  /// Rows that the last insert or update touched.
  [[nodiscard]] std::int64_t changes() const;
  [[nodiscard]] bool in_transaction() const;
  /// Whether the last failure was another process's lock.
  [[nodiscard]] bool was_locked_out() const;
  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  [[nodiscard]] std::chrono::milliseconds patience() const { return patience_; }

  /// What the last call that returned `code` has to say.
  [[nodiscard]] Status failure(int code) const;
  [[nodiscard]] Status damaged(std::string_view how) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  Database(std::filesystem::path file, std::chrono::milliseconds patience);

  std::unique_ptr<sqlite3, Close> handle_;
  std::filesystem::path file_;
  std::chrono::milliseconds patience_;
};

/// A prepared statement: values are bound and columns read one after the other.
class Statement {
 public:
  Statement(const Database& database, sqlite3* handle, std::string_view sql);

  template <class... Values>
  Statement& bind(const Values&... values) {
    (bind_next(values), ...);
    return *this;
  }

  /// Whether there is a (next) row. False at the end and on failure.
  [[nodiscard]] bool step();
  /// Steps to the end.
  [[nodiscard]] Status run();
  [[nodiscard]] const Status& status() const { return status_; }

  // The next column of the current row.
  std::int64_t integer();
  double real();
  bool boolean() { return integer() != 0; }
  std::optional<bool> optional_boolean();
  std::string text();
  /// A BLOB of little-endian doubles.
  std::vector<double> doubles();

  /// Makes the statement fail because a row holds what this program never writes.
  void report_damage(std::string_view how);

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* handle) const;
  };
  void bind_next(std::string_view text);
  void bind_next(std::int64_t integer);
  void bind_next(int integer) { bind_next(std::int64_t{integer}); }
  void bind_next(bool boolean) { bind_next(std::int64_t{boolean}); }
  void bind_next(std::optional<bool> boolean);
  void bind_next(double real);
  void bind_next(std::span<const double> blob);
  void check(int code);

  const Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
  Status status_;
  int bound_ = 0;
  int column_ = 0;
};

/// All or nothing: rolls back at the end of its life unless committed.
class Transaction {
 public:
  /// A writer takes its lock at once: taken later, SQLite would refuse it without waiting when another
  /// process wrote in between.
  Transaction(const Database& database, Access access);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  [[nodiscard]] const Status& begun() const { return begun_; }
  [[nodiscard]] Status commit() { return database_.execute("COMMIT"); }

 private:
  const Database& database_;
  Status begun_;
};

}  // namespace saccade::store
