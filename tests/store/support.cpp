#include "support.h"

#include <array>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace saccade::store {
namespace {

constexpr uid_t kNobody = 65534;

}  // namespace

Run some_run() {
  Json provenance = {{"commit", "0123456789abcdef"},
                     {"dirty", true},
                     {"version", "0.1.0"},
                     {"host", {{"cpu", "A CPU \"of\" some kind"}, {"logical_cpus", 2}}},
                     {"date", "2026-01-02T03:04:05Z"},
                     {"seed", 0xfedcba9876543210U},
                     {"command_line", "saccade bench --shape 'q=1'"}};
  Result<Run> run = describe_run(std::move(provenance), "A CPU of some kind");
  if (!run.ok()) throw std::runtime_error(run.status().message());
  run->details = {{"budget_seconds", 0.1}};
  return std::move(run).value();
}

Measurement some_measurement(int number) {
  Measurement m{.shape = fmt::format("b=1 h=2 q={} d=64", number),
                .kernel = "cpu_blocked",
                .config = "rows=8,threads=2",
                .threads = 2 + number,
                .caches = number % 2 == 0 ? Caches::cold : Caches::warm,
                .timer = number % 3 == 0 ? Timer::device : Timer::host,
                .not_timed = {},
                .verified = true,
                .flops = 1e9 / 3 + number,
                .bytes = 1e6 / 7,
                .flops_ceiling = 1e11 / 3,
                .bytes_ceiling = 2e10 / 3,
                .calls_per_sample = 3,
                .converged = true,
                .seconds = {.samples = 300,
                            .median = 0.1,
                            .interval = {.low = 1.0 / 11, .high = 0.2},
                            .min = 5e-324,
                            .p95 = 0.3},
                .samples = {},
                .details = {{"workspace_bytes", 4096}, {"relative_l2", 1.0 / 3}, {"number", number}}};
  for (std::size_t n = 0; n < m.seconds.samples; ++n)
    m.samples.push_back((number + 1.0) / (static_cast<double>(n) + 3));
  m.samples[1] = -0.0;  // keeps its sign
  m.samples[2] = 5e-324;
  return m;
}

std::string make_store(const std::filesystem::path& file, int measurements) {
  Result<Store> store = Store::open(file, Access::write);
  if (!store.ok()) throw std::runtime_error(store.status().message());
  Result<std::string> id = store->begin_run(some_run());
  if (!id.ok()) throw std::runtime_error(id.status().message());
  for (int n = 0; n < measurements; ++n) {
    const Status added = store->add_measurement(id.value(), some_measurement(n));
    if (!added.ok()) throw std::runtime_error(added.message());
  }
  return id.value();
}

Child::Child(const std::function<int(int pipe)>& work) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process");
  if (pid_ == 0) {
    close(ends[0]);
    int status = 70;
    try {
      status = work(ends[1]);
    } catch (const std::exception& e) {
      fmt::print(stderr, "in a child: {}\n", e.what());
    }
    _exit(status);
  }
  close(ends[1]);
  read_end_ = ends[0];
}

Child::~Child() {
  kill();
  wait();
  close(read_end_);
}

void Child::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

std::string Child::read_to_end() {
  std::string all;
  std::array<char, 4096> part{};
  for (ssize_t got = 0; (got = read(read_end_, part.data(), part.size())) > 0;) {
    all.append(part.data(), static_cast<std::size_t>(got));
  }
  return all;
}

int Child::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void write_all(int pipe, const std::string& text) {
  if (write(pipe, text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(71);
}

std::string in_child(const std::function<std::string()>& work) {
  Child child([&](int pipe) {
    write_all(pipe, work());
    return 0;
  });
  std::string result = child.read_to_end();
  EXPECT_EQ(child.wait(), 0);
  return result;
}

void give_up_root() {
  if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(72);
}

void hand_over(const std::filesystem::path& path) {
  if (geteuid() != 0) return;
  if (chown(path.c_str(), kNobody, kNobody) != 0) throw std::runtime_error("chown failed");
}

}  // namespace saccade::store
