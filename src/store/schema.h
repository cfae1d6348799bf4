// The tables, their version, and the way to the newest one.
#pragma once

#include "store/database.h"

namespace saccade::store {

/// What this program reads and writes; PRAGMA user_version of a store.
inline constexpr int kSchemaVersion = 1;

/// Fails, without writing anything, unless the file is a store of exactly this version.
[[nodiscard]] Status prepare_for_reading(const Database& database);

/// Creates the tables in an empty file and brings an older store up to date. Fails, without writing anything,
/// when the file is somebody else's, damaged or newer.
[[nodiscard]] Status prepare_for_writing(const Database& database);

/// Whether every page, row and index is as SQLite left it.
[[nodiscard]] Status check_integrity(const Database& database);

}  // namespace saccade::store
