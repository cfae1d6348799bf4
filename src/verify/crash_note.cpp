#include "verify/crash_note.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <unistd.h>
#include <utility>

namespace saccade {
namespace {

std::atomic<const char*> g_note = nullptr;

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
/// What was in force before: the default, or a sanitizer's or debugger's handler.
std::array<struct sigaction, kSignals.size()> g_previous;

void print_and_pass_on(int signal, siginfo_t* info, void*) {
  if (const char* note = g_note.load()) {
    // A handler may only make async-signal-safe calls, and a failing write leaves nothing to be done.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, note, std::strlen(note));
  }
  for (std::size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], &g_previous[n], nullptr);
  // Returning repeats the instruction at fault, now for the previous handler; a signal that was sent is not
  // repeated by itself.
  if (info->si_code <= 0) raise(signal);
}

void install_once() {
  static const bool kInstalled = [] {
    struct sigaction action {};
    action.sa_sigaction = print_and_pass_on;
    action.sa_flags = SA_SIGINFO;
    for (std::size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], &action, &g_previous[n]);
    return true;
  }();
  static_cast<void>(kInstalled);
}

}  // namespace

CrashNote::CrashNote(std::string text) : text_(std::move(text)) {
  install_once();
  previous_ = g_note.exchange(text_.c_str());
}

CrashNote::~CrashNote() {
  g_note.store(previous_);
}

}  // namespace saccade
