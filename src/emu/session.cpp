#include "emu/session.h"

#include <utility>

namespace saccade::emu {
namespace {

thread_local Session* innermost = nullptr;

}  // namespace

Session::Session(const Options& options) : options_(options), outer_(innermost) {
  innermost = this;
}

Session::~Session() {
  innermost = outer_;
}

void launch_in_session(const Shape& shape, const GlobalMemory& memory,
                       const std::function<void()>& thread_main) {
  Session* session = innermost;
  Counters counters = launch(shape, memory, session != nullptr ? session->options_ : Options{}, thread_main);
  if (session == nullptr) return;
  session->counters_.add(counters);
  session->launches_.push_back({shape, std::move(counters)});
}

}  // namespace saccade::emu
