#include "store/database.h"

#include <bit>
#include <cstring>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>
#include <utility>

namespace saccade::store {
namespace {

static_assert(std::endian::native == std::endian::little, "samples are stored as little-endian doubles");

/// A reader of a WAL database has to create files beside it. Where it may not, and where no log waits to be
/// read, SQLite can be told that the file will not change.
bool can_only_be_read_as_it_is(const std::filesystem::path& file) {
  const bool folder_is_writable = faccessat(AT_FDCWD, file.parent_path().c_str(), W_OK, AT_EACCESS) == 0;
  std::error_code ignored;
  return !folder_is_writable && !std::filesystem::exists(file.string() + "-wal", ignored);
}

std::string immutable_uri(const std::filesystem::path& file) {
  std::string uri = "file:";
  for (const char c : file.string()) {
    const bool special = c == '%' || c == '?' || c == '#';
    uri += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return uri + "?immutable=1";
}

}  // namespace

Database::Database(std::filesystem::path file, std::chrono::milliseconds patience)
    : file_(std::move(file)), patience_(patience) {}

void Database::Close::operator()(sqlite3* handle) const {
  sqlite3_close_v2(handle);
}

Result<Database> Database::open(const std::filesystem::path& file, Access access,
                                std::chrono::milliseconds patience) {
  Database database(file, patience);
  const bool immutable = access == Access::read && can_only_be_read_as_it_is(file);
  const std::string name = immutable ? immutable_uri(file) : file.string();
  const int flags =
      (access == Access::read ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) |
      (immutable ? SQLITE_OPEN_URI : 0) | SQLITE_OPEN_EXRESCODE;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &handle, flags, nullptr);
  database.handle_.reset(handle);  // there is one on failure too
  if (code != SQLITE_OK) return database.failure(code);
  sqlite3_busy_timeout(handle, static_cast<int>(patience.count()));
  // SQLite falls back to reading by itself.
  if (access == Access::write && sqlite3_db_readonly(handle, "main") != 0)
    return database.failure(SQLITE_READONLY);
  // A store may come from somebody else: damage is to be seen early, and its schema is not to call functions.
  Status set = database.execute("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF");
  if (!set.ok()) return set;
  return database;
}

Statement Database::prepare(std::string_view sql) const {
  return {*this, handle_.get(), sql};
}

Status Database::execute(const std::string& sql) const {
  const int code = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : failure(code);
}

std::int64_t Database::changes() const {
  return sqlite3_changes64(handle_.get());
}

bool Database::in_transaction() const {
  return sqlite3_get_autocommit(handle_.get()) == 0;
}

bool Database::was_locked_out() const {
  return (sqlite3_errcode(handle_.get()) & 0xff) == SQLITE_BUSY;
}

Status Database::damaged(std::string_view how) const {
  return {Code::invalid_argument,
          fmt::format("the store {} is damaged ({}); it was left as it is", file_.string(), how)};
}

Status Database::failure(int code) const {
  const int system_error = sqlite3_system_errno(handle_.get());
  const std::string store = "the store " + file_.string();
  if (code == SQLITE_IOERR_WRITE) {  // what SQLite makes of a quota, too
    return {Code::out_of_memory,
            store +
                " cannot be written: the disk failed, or a quota or a limit on file sizes "
                "is reached; what it held before is unharmed"};
  }
  const std::string why = system_error != 0 ? std::strerror(system_error) : sqlite3_errmsg(handle_.get());
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {Code::invalid_argument,
              fmt::format("{} is locked by another process, still after {}; nothing was written", store,
                          std::chrono::duration<double>(patience_))};
    case SQLITE_NOTADB:
      return {Code::invalid_argument, file_.string() + " is not a store: it is no SQLite database"};
    case SQLITE_CORRUPT:
      return damaged(sqlite3_errmsg(handle_.get()));
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return {Code::invalid_argument, store + " cannot be written: the file or its folder is read-only"};
    case SQLITE_CANTOPEN:
      return {Code::invalid_argument, fmt::format("{} or a file beside it cannot be opened: {}", store, why)};
    case SQLITE_IOERR:
      return {Code::invalid_argument, fmt::format("{} cannot be read or written: {}", store, why)};
    case SQLITE_FULL:
      return {Code::out_of_memory, store + " cannot grow: the disk is full; what it held before is unharmed"};
    case SQLITE_NOMEM:
      return {Code::out_of_memory, store + " needs more memory than there is"};
    // Our statements are fixed and tested: what they do not find is missing in the file.
    case SQLITE_ERROR:
      return damaged(sqlite3_errmsg(handle_.get()));
    default:
      return {Code::internal, fmt::format("{}: {}", store, sqlite3_errmsg(handle_.get()))};
  }
}

Statement::Statement(const Database& database, sqlite3* handle, std::string_view sql) : database_(database) {
  sqlite3_stmt* statement = nullptr;
  check(sqlite3_prepare_v2(handle, sql.data(), static_cast<int>(sql.size()), &statement, nullptr));
  handle_.reset(statement);
}

void Statement::Finalize::operator()(sqlite3_stmt* handle) const {
  sqlite3_finalize(handle);
}

void Statement::check(int code) {
  if (status_.ok() && code != SQLITE_OK && code != SQLITE_ROW && code != SQLITE_DONE) {
    status_ = database_.failure(code);
  }
}

void Statement::report_damage(std::string_view how) {
  if (status_.ok()) status_ = database_.damaged(how);
}

// Null pointers would be stored as NULL, hence "" for what is empty.
void Statement::bind_next(std::string_view text) {
  if (!status_.ok()) return;
  check(sqlite3_bind_text64(handle_.get(), ++bound_, text.empty() ? "" : text.data(), text.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind_next(std::int64_t integer) {
  if (status_.ok()) check(sqlite3_bind_int64(handle_.get(), ++bound_, integer));
}

void Statement::bind_next(std::optional<bool> boolean) {
  if (boolean) return bind_next(*boolean);
  if (status_.ok()) check(sqlite3_bind_null(handle_.get(), ++bound_));
}

void Statement::bind_next(double real) {
  if (status_.ok()) check(sqlite3_bind_double(handle_.get(), ++bound_, real));
}

void Statement::bind_next(std::span<const double> blob) {
  if (!status_.ok()) return;
  const void* data = blob.empty() ? static_cast<const void*>("") : blob.data();
  check(sqlite3_bind_blob64(handle_.get(), ++bound_, data, blob.size_bytes(), SQLITE_TRANSIENT));
}

bool Statement::step() {
  if (!status_.ok()) return false;
  column_ = 0;
  const int code = sqlite3_step(handle_.get());
  check(code);
  return code == SQLITE_ROW;
}

Status Statement::run() {
  while (step()) {
  }
  return status_;
}

std::int64_t Statement::integer() {
  return sqlite3_column_int64(handle_.get(), column_++);
}

double Statement::real() {
  return sqlite3_column_double(handle_.get(), column_++);
}

std::optional<bool> Statement::optional_boolean() {
  if (sqlite3_column_type(handle_.get(), column_) == SQLITE_NULL) {
    ++column_;
    return std::nullopt;
  }
  return boolean();
}

std::string Statement::text() {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column_));
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column_));
  ++column_;
  return data == nullptr ? std::string() : std::string(data, size);
}

std::vector<double> Statement::doubles() {
  const void* data = sqlite3_column_blob(handle_.get(), column_);
  const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle_.get(), column_));
  ++column_;
  if (size % sizeof(double) != 0) report_damage("samples that are no whole numbers of doubles");
  std::vector<double> doubles(size / sizeof(double));
  if (!doubles.empty()) std::memcpy(doubles.data(), data, doubles.size() * sizeof(double));
  return doubles;
}

Transaction::Transaction(const Database& database, Access access)
    : database_(database), begun_(database.execute(access == Access::write ? "BEGIN IMMEDIATE" : "BEGIN")) {}

Transaction::~Transaction() {
  // SQLite has rolled back by itself after some failures. A rollback cannot lose anything that was promised,
  // so that its own failure needs no report.
  if (begun_.ok() && database_.in_transaction()) static_cast<void>(database_.execute("ROLLBACK"));
}

}  // namespace saccade::store
