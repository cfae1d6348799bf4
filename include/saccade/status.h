// Errors as values: a code for programs and a sentence for people.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <saccade/export.h>

namespace saccade {

/// What went wrong, coarsely. The numbers are part of the C ABI and never change meaning.
enum class Code : int {
  ok = 0,
  invalid_argument = 1,    ///< The caller's values are wrong; the sentence names the argument and the values.
  unsupported = 2,         ///< A legal request that nothing in this build can serve.
  device_unavailable = 3,  ///< The device asked for does not exist, or memory of another device was passed.
  workspace_too_small = 4,  ///< The workspace is missing, too small or misaligned.
  out_of_memory = 5,        ///< An allocation failed (only the one-call convenience allocates).
  internal = 6,             ///< A defect in this library.
};

/// The name of a code, as it is spelled above.
[[nodiscard]] SACCADE_API const char* to_string(Code code) noexcept;

/// The outcome of a call. Default-constructed it means success.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const noexcept { return code_ == Code::ok; }
  [[nodiscard]] Code code() const noexcept { return code_; }
  /// One sentence that names the argument and the offending values; empty on success.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

/// Either a value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Result(Status failure) : status_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }
  /// The value. Only legal after ok().
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace saccade
