#include "bench_document.h"

#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench_record.h"
#include "command.h"

namespace saccade::cli {
namespace {

using Json = nlohmann::ordered_json;
using store::Measurement;

/// The details of a measurement that a document repeats as they are.
constexpr const char* kDetails[] = {"chosen", "workspace_bytes", "extra_bytes", "speedup"};

double microseconds(double seconds) {
  return rounded(seconds * 1e6);
}

double giga(double per_second) {
  return rounded(per_second / 1e9);
}

Json times(const Measurement& m) {
  const measure::Summary& s = m.seconds;
  return {{"timer", m.timer == store::Timer::device ? "device" : "host"},
          {"median_us", microseconds(s.median)},
          {"low_us", microseconds(s.interval.low)},
          {"high_us", microseconds(s.interval.high)},
          {"min_us", microseconds(s.min)},
          {"p95_us", microseconds(s.p95)},
          {"samples", s.samples},
          {"calls_per_sample", m.calls_per_sample},
          {"converged", m.converged}};
}

Json kernel_json(const Measurement& m) {
  const Json verified = m.details.value("verified", Json());
  Json json = {{"kernel", m.kernel}};
  if (!m.not_timed.empty()) {
    json[m.details.value("rejected", false) ? "rejected" : "not_timed"] = m.not_timed;
    if (!verified.is_null()) json["verified"] = verified;
    return json;
  }
  json["config"] = m.config;
  json["verified"] = verified;
  json["time"] = times(m);
  // From the figures as they stand in the document, so that reading and writing it again changes nothing.
  const double nanoseconds = microseconds(m.seconds.median) * 1e3;
  json["gflops"] = rounded(m.flops / nanoseconds);
  json["fma_percent"] = rounded(100 * m.flops / nanoseconds / giga(m.flops_ceiling));
  json["gbps"] = rounded(m.bytes / nanoseconds);
  json["read_percent"] = rounded(100 * m.bytes / nanoseconds / giga(m.bytes_ceiling));
  for (const char* key : kDetails) {
    if (m.details.contains(key)) json[key] = m.details.at(key);
  }
  return json;
}

Json shape_json(const Measurement& first) {
  Json json = {{"shape", first.shape}, {"flops", first.flops}, {"bytes", first.bytes}};
  if (first.bytes_ceiling > 0) {
    json["read_ceiling_gbps"] = giga(first.bytes_ceiling);
    json["fma_ceiling_gflops"] = giga(first.flops_ceiling);
    const bool compute = first.flops / giga(first.flops_ceiling) >= first.bytes / giga(first.bytes_ceiling);
    json["bound"] = compute ? "compute" : "memory";
  }
  json["bars"] = Json::array();
  json["kernels"] = Json::array();
  return json;
}

/// A place in a document, so that an error can say where it is.
class Field {
 public:
  Field(const Json& json, std::string path, const std::string& file)
      : json_(json), path_(std::move(path)), file_(file) {}

  [[nodiscard]] bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
  [[nodiscard]] Field at(const char* key) const {
    if (!has(key)) fail(fmt::format("{}{} is missing", prefix(), key));
    return {json_.at(key), prefix() + key, file_};
  }
  [[nodiscard]] Field at(std::size_t index) const {
    return {json_.at(index), fmt::format("{}[{}]", path_, index), file_};
  }
  [[nodiscard]] std::size_t size() const {
    if (!json_.is_array()) fail(path_ + " is not a list");
    return json_.size();
  }
  [[nodiscard]] double number() const {
    if (!json_.is_number()) fail(path_ + " is not a number");
    return json_.get<double>();
  }
  [[nodiscard]] std::int64_t count() const {
    if (!json_.is_number_integer() || json_.get<std::int64_t>() < 0) fail(path_ + " is not a natural number");
    return json_.get<std::int64_t>();
  }
  [[nodiscard]] bool flag() const {
    if (!json_.is_boolean()) fail(path_ + " is neither true nor false");
    return json_.get<bool>();
  }
  [[nodiscard]] std::string text() const {
    if (!json_.is_string()) fail(path_ + " is not text");
    return json_.get<std::string>();
  }
  /// One of two words; true for the first.
  [[nodiscard]] bool either(std::string_view first, std::string_view second) const {
    const std::string word = text();
    if (word != first && word != second) {
      fail(fmt::format("{} is '{}', neither '{}' nor '{}'", path_, word, first, second));
    }
    return word == first;
  }
  [[nodiscard]] const Json& json() const { return json_; }
  [[noreturn]] void fail(const std::string& what) const {
    throw CommandError(kBadInput, fmt::format("{}: {}", file_, what));
  }

 private:
  [[nodiscard]] std::string prefix() const { return path_.empty() ? "" : path_ + "."; }

  const Json& json_;
  std::string path_;
  const std::string& file_;
};

void read_times(const Field& time, Measurement& m) {
  const auto seconds = [&](const char* key) { return time.at(key).number() * 1e-6; };
  m.timer = time.at("timer").either("device", "host") ? store::Timer::device : store::Timer::host;
  m.seconds = {.samples = static_cast<std::size_t>(time.at("samples").count()),
               .median = seconds("median_us"),
               .interval = {seconds("low_us"), seconds("high_us")},
               .min = seconds("min_us"),
               .p95 = seconds("p95_us")};
  m.calls_per_sample = static_cast<int>(time.at("calls_per_sample").count());
  m.converged = time.at("converged").flag();
}

void read_speedup(const Field& speedup) {
  (void)speedup.at("baseline").text();
  (void)speedup.at("verdict").text();
  for (const char* key : {"value", "low", "high"}) (void)speedup.at(key).number();
}

Measurement read_kernel(const Field& shape, const Field& kernel) {
  Measurement m;
  m.shape = shape.at("shape").text();
  m.flops = shape.at("flops").number();
  m.bytes = shape.at("bytes").number();
  m.kernel = kernel.at("kernel").text();
  if (kernel.has("verified") && !kernel.at("verified").json().is_null()) {
    m.verified = kernel.at("verified").at("passed").flag();
    m.details["verified"] = kernel.at("verified").json();
  }
  if (kernel.has("rejected")) {
    m.not_timed = kernel.at("rejected").text();
    m.details["rejected"] = true;
  } else if (kernel.has("not_timed")) {
    m.not_timed = kernel.at("not_timed").text();
  }
  if (m.not_timed.empty() || shape.has("fma_ceiling_gflops")) {
    m.flops_ceiling = shape.at("fma_ceiling_gflops").number() * 1e9;
    m.bytes_ceiling = shape.at("read_ceiling_gbps").number() * 1e9;
  }
  if (!m.not_timed.empty()) return m;
  m.config = kernel.at("config").text();
  read_times(kernel.at("time"), m);
  for (const char* key : {"gflops", "fma_percent", "gbps", "read_percent"}) (void)kernel.at(key).number();
  (void)kernel.at("workspace_bytes").count();
  if (kernel.has("chosen")) (void)kernel.at("chosen").flag();
  if (kernel.has("speedup")) read_speedup(kernel.at("speedup"));
  for (const char* key : kDetails) {
    if (kernel.has(key)) m.details[key] = kernel.at(key).json();
  }
  return m;
}

void read_shape(const Field& shape, std::vector<Measurement>& all) {
  const Field kernels = shape.at("kernels");
  const std::size_t before = all.size();
  for (std::size_t i = 0; i < kernels.size(); ++i) all.push_back(read_kernel(shape, kernels.at(i)));
  const Field bars = shape.at("bars");
  for (std::size_t i = 0; i < bars.size(); ++i) {
    (void)bars.at(i).at("bar").text();
    (void)bars.at(i).at("value").number();
    (void)bars.at(i).at("met").flag();
  }
  if (bars.size() == 0) return;
  for (std::size_t i = before; i < all.size(); ++i) {
    if (!all[i].not_timed.empty()) continue;
    all[i].details["bars"] = bars.json();
    return;
  }
  bars.fail(fmt::format("{} has bars, but no kernel was timed", shape.at("shape").text()));
}

}  // namespace

Json bench_document(const store::WholeRun& whole) {
  const store::Run& run = whole.run;
  Json document = {
      {"schema", kBenchSchema}, {"run", run.id}, {"finished", run.finished}, {"provenance", run.provenance}};
  document.update(run.details);
  Json& results = document["results"] = Json::array();
  const Measurement* first =
      nullptr;  // of the shape at hand; when it comes again, the shape was measured again
  for (const Measurement& m : whole.measurements) {
    const bool again = first != nullptr && m.kernel == first->kernel && m.timer == first->timer;
    if (first == nullptr || first->shape != m.shape || again) {
      results.push_back(shape_json(m));
      first = &m;
    }
    Json& shape = results.back();
    shape["kernels"].push_back(kernel_json(m));
    for (const Json& bar : m.details.value("bars", Json::array())) shape["bars"].push_back(bar);
  }
  return document;
}

store::WholeRun read_document(const Json& document, const std::string& file) {
  const Field root(document, "", file);
  if (const std::string schema = root.has("schema") ? root.at("schema").text() : ""; schema != kBenchSchema) {
    root.fail(fmt::format("the schema is '{}'; '{}' is needed", schema, kBenchSchema));
  }
  const Field provenance = root.at("provenance");
  const Field host = provenance.at("host");
  for (const char* key : {"cpu", "simd_target", "governor"}) (void)host.at(key).text();
  for (const char* key : {"version", "compiler", "flags"}) (void)provenance.at(key).text();
  Result<store::Run> run = store::describe_run(provenance.json(), host.at("cpu").text());
  if (!run.ok()) root.fail(run.status().message());
  store::WholeRun whole{std::move(run).value(), {}};
  whole.run.id = root.at("run").text();
  whole.run.finished = root.at("finished").text();
  for (const char* key : {"fma_gflops", "copy_gbps"}) (void)root.at("ceilings").at(key).number();
  (void)root.at("device").text();
  (void)root.at("budget_seconds").number();
  const auto threads = static_cast<int>(root.at("threads").count());
  const bool warm = root.at("caches").either("warm", "cold");
  for (const char* key : {"device", "threads", "caches", "budget_seconds", "ceilings"}) {
    whole.run.details[key] = root.at(key).json();
  }
  const Field results = root.at("results");
  for (std::size_t i = 0; i < results.size(); ++i) read_shape(results.at(i), whole.measurements);
  for (Measurement& m : whole.measurements) {
    m.threads = threads;
    m.caches = warm ? store::Caches::warm : store::Caches::cold;
  }
  return whole;
}

Json load_bench_document(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw CommandError(kBadInput, fmt::format("{} cannot be read", file));
  Json document = Json::parse(stream, nullptr, false);
  if (document.is_discarded()) throw CommandError(kBadInput, fmt::format("{} is not JSON", file));
  (void)read_document(document, file);
  return document;
}

void write_file(const std::string& file, const std::string& text) {
  namespace fs = std::filesystem;
  const fs::path path(file);
  const fs::path draft(file + ".tmp");
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  std::ofstream stream(draft, std::ios::binary);
  stream << text << std::flush;
  if (!stream) throw CommandError(kBadInput, fmt::format("{} cannot be written", file));
  stream.close();
  fs::rename(draft, path, error);
  if (error) throw CommandError(kBadInput, fmt::format("{} cannot be written: {}", file, error.message()));
}

}  // namespace saccade::cli
