// The page that report --html writes: as text, and as a browser shows it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>

#include "run_command.h"

namespace saccade {
namespace {

using Json = nlohmann::ordered_json;

Json timed_kernel(const std::string& name, double median_us) {
  return {{"kernel", name},
          {"config", "threads=2"},
          {"verified", {{"passed", true}}},
          {"time",
           {{"timer", "host"},
            {"median_us", median_us},
            {"low_us", 0.99 * median_us},
            {"high_us", 1.02 * median_us},
            {"min_us", 0.98 * median_us},
            {"p95_us", 1.1 * median_us},
            {"samples", 20},
            {"calls_per_sample", 1},
            {"converged", true}}},
          {"gflops", 150},
          {"fma_percent", 75.25},
          {"gbps", 1.17},
          {"read_percent", 2.3},
          {"workspace_bytes", 0},
          {"extra_bytes", 4096}};
}

/// A kernel called `name` on two lengths, beside a baseline that is 40 times slower.
Json document_with(const std::string& name) {
  Json document = {{"schema", "saccade.bench/1"},
                   {"run", "00000000deadbeef"},
                   {"finished", "2026-01-02T03:05:05Z"},
                   {"provenance",
                    {{"commit", "0123456789ab"},
                     {"dirty", false},
                     {"version", "0.1.0"},
                     {"compiler", "GNU 12"},
                     {"flags", "-O3 -fsome-flag"},
                     {"host",
                      {{"cpu", "Some CPU"},
                       {"logical_cpus", 2},
                       {"memory_bytes", 1073741824},
                       {"simd_target", "AVX3"},
                       {"governor", "none"}}},
                     {"date", "2026-01-02T03:04:05Z"},
                     {"seed", 4711},
                     {"command_line", "saccade bench --cases some_cases"}}},
                   {"device", "cpu"},
                   {"threads", 2},
                   {"caches", "warm"},
                   {"budget_seconds", 3.25},
                   {"ceilings", {{"fma_gflops", 207.5}, {"copy_gbps", 20.5}}},
                   {"results", Json::array()}};
  for (const int length : {512, 1024}) {
    const double median_us = 3579.1 * length / 512;
    Json fast = timed_kernel(name, median_us);
    fast["speedup"] = {
        {"baseline", "plain"}, {"value", 40}, {"low", 39}, {"high", 41}, {"verdict", "faster"}};
    document["results"].push_back(
        {{"shape", "b1 h8 l" + std::to_string(length) + " d64 f32"},
         {"flops", 1048576.0 * length},
         {"bytes", 8192.0 * length},
         {"read_ceiling_gbps", 50},
         {"fma_ceiling_gflops", 200},
         {"bound", "compute"},
         {"bars", {{{"bar", "at least 70% of the FMA peak"}, {"value", 75.25}, {"met", length == 512}}}},
         {"kernels", {fast, timed_kernel("plain", 40 * median_us)}}});
  }
  return document;
}

/// The values of an attribute, wherever it stands.
std::vector<std::string> values_of(const std::string& page, const std::string& attribute) {
  std::vector<std::string> values;
  for (std::size_t at = page.find(attribute + "="); at != std::string::npos;
       at = page.find(attribute + "=", at + 1)) {
    const std::size_t begin = at + attribute.size() + 2;
    values.push_back(page.substr(begin, page.find(page[begin - 1], begin) - begin));
  }
  return values;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class HtmlReport : public testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string file_ = folder_.file("page.html");

  void SetUp() override {
    if (std::system("command -v gnuplot > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "gnuplot, which draws the figures, is not installed";
    }
  }

  std::string page_of(const Json& document) {
    const std::string data = folder_.write("data.json", document.dump());
    const CommandResult result = run_saccade("report '" + data + "' --html '" + file_ + "'");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out, "written: " + file_ + "\n");
    return read_file(file_);
  }
};

TEST_F(HtmlReport, NeedsNothingFromElsewhere) {
  const std::string page = page_of(document_with("fast"));
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  for (const char* text :
       {"<script", "javascript:", "http://", "https://", "@import", "<link", "<img", "<iframe"}) {
    EXPECT_EQ(page.find(text), std::string::npos) << text;
  }
  for (const char* attribute : {"href", "src"}) {
    for (const std::string& value : values_of(page, attribute)) EXPECT_TRUE(value.starts_with("#")) << value;
  }
  EXPECT_EQ(count(page, "url("), count(page, "url(#"));
}

TEST_F(HtmlReport, HasTheFiguresOfItsData) {
  const std::string page = page_of(document_with("fast"));
  for (const char* text :
       {"<code>b1 h8 l512 d64 f32</code>", "3.58 ms (3.54 ms .. 3.65 ms)", "<strong>75.0%</strong>",
        "40.0x faster (plain)", "1 of 2 bars are met", "Some CPU", "0123456789ab", "-O3 -fsome-flag",
        "2026-01-02T03:04:05Z", "<dd>4711</dd>", "saccade bench --cases some_cases", "<dd>3.25</dd>",
        "<dd>207.5</dd>", "<dd>20.5</dd>", "1073741824 (1.00 GiB)"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(count(page, "<svg"), 5U);
}

TEST_F(HtmlReport, HasNoIdTwice) {
  const std::string data = folder_.write("data.json", document_with("fast").dump());
  const CommandResult result = run_saccade("report '" + data + "' '" + data + "' --html '" + file_ + "'");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string page = read_file(file_);
  EXPECT_EQ(count(page, "<svg"), 10U);
  const std::vector<std::string> ids = values_of(page, " id");
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  for (const std::string& target : values_of(page, "href")) {
    EXPECT_NE(std::ranges::find(ids, target.substr(1)), ids.end()) << target;
  }
}

TEST_F(HtmlReport, ShowsNamesAsTheyAreAndRunsNothingInThem) {
  const std::string made = folder_.file("made");
  const std::string page =
      page_of(document_with("<b>&\"' 5%d `touch " + made + "` \\n x_y\nsystem('touch " + made + "')"));
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_NE(page.find("<td>&lt;b&gt;&amp;&quot;&#39; 5%d `touch"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(made));
  // In each figure that names kernels, too, shortened.
  EXPECT_GE(count(page, "' 5%d `touch"), 3U);
}

TEST_F(HtmlReport, LeavesOutWhatTheDataDoNotHaveAndSaysWhy) {
  Json document = document_with("fast");
  document["results"].erase(1);
  Json& result = document["results"][0];
  result["bars"] = Json::array();
  result["kernels"].erase(1);
  result["kernels"][0].erase("speedup");
  const std::string page = page_of(document);
  EXPECT_EQ(count(page, "<svg"), 2U);  // the speed and the roofline
  for (const char* text :
       {"no speed-up to draw", "no line of time against length", "no ladder", "have no bars"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  result["kernels"] = Json::array({{{"kernel", "fast"}, {"not_timed", "too slow"}}});
  const std::string empty = page_of(document);
  EXPECT_EQ(count(empty, "<svg"), 0U);
  EXPECT_NE(empty.find("too slow"), std::string::npos);
}

TEST(HtmlReportWithoutGnuplot, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const std::string data = folder.write("data.json", document_with("fast").dump());
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder.file("empty").c_str(), 1);
  const CommandResult result = run_saccade("report '" + data + "' --html '" + folder.file("page.html") + "'");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("gnuplot is not installed"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder.file("page.html")));
}

TEST_F(HtmlReport, RefusesTimesThatCannotBe) {
  Json document = document_with("fast");
  document["results"][0]["kernels"][0]["time"]["low_us"] = -1;
  const std::string data = folder_.write("data.json", document.dump());
  const CommandResult result = run_saccade("report '" + data + "' --html '" + file_ + "'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("the times of fast on b1 h8 l512 d64 f32"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(file_));
}

// What a page is asked, by a script that only the copy under test has. The median and the values in figures
// must be visible words, not only somewhere in the file.
constexpr char kQuestions[] = R"js(<script>
function answers(view) {
  const page = view.document, words = [...page.querySelectorAll("svg text")];
  const visible = element => element.getBoundingClientRect().width > 0 && element.getBoundingClientRect().height > 0;
  const drawn = text => words.some(word => visible(word) && word.textContent.trim() == text);
  return JSON.stringify({
    svgs: [...page.querySelectorAll("svg")].filter(visible).length,
    page_width: page.documentElement.scrollWidth,
    window_width: view.innerWidth,
    median: page.body.innerText.includes("3.58 ms (3.54 ms .. 3.65 ms)"),
    percent: drawn("75.0"),
    speedup: drawn("40.0x"),
    kernel: drawn("fast <b>&\""),
    background: view.getComputedStyle(page.body).backgroundColor,
    ink: view.getComputedStyle(words[0].parentNode).fill,
    dark: view.matchMedia("(prefers-color-scheme: dark)").matches});
}
</script>)js";

class HtmlReportInBrowser : public HtmlReport {
 protected:
  void SetUp() override {
    HtmlReport::SetUp();
    if (IsSkipped()) return;
    if (std::system("command -v chromium > /dev/null 2>&1") != 0) {
      GTEST_SKIP() << "chromium, which opens the page, is not installed";
    }
    page_ = page_of(document_with("fast <b>&\""));
    ASSERT_TRUE(page_.ends_with("</body>\n</html>\n"));
  }

  /// What the page answers in a window of its own, 1200 wide.
  nlohmann::json ask(const std::string& arguments) {
    std::string asked = page_;
    asked.insert(asked.rfind("</body>"),
                 std::string(kQuestions) + "<script>document.title = answers(window)</script>");
    return title_of(asked, "--window-size=1200,900 " + arguments);
  }

  /// What it answers in a frame as wide as a phone: browsers do not make windows that narrow.
  nlohmann::json ask_on_phone() {
    std::string quoted;
    for (const char c : page_) quoted += c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    return title_of(
        "<!DOCTYPE html><html><head><title></title></head><body>" + std::string(kQuestions) +
            "<iframe style='width: 390px; height: 844px; border: 0' srcdoc=\"" + quoted +
            "\"></iframe><script>onload = () => document.title = answers(frames[0])</script></body></html>",
        "--window-size=1200,900");
  }

  std::string page_;

 private:
  /// The title that the page's script sets, as JSON; a discarded value when it is not.
  nlohmann::json title_of(const std::string& page, const std::string& arguments) {
    const std::string file = folder_.write("asked.html", page);
    const std::string dom = folder_.file("dom"), log = folder_.file("log");
    const std::string command = "HOME='" + folder_.file("home") +
                                "' timeout 120 chromium --headless --no-sandbox --disable-gpu "
                                "--disable-dev-shm-usage --hide-scrollbars "
                                "--enable-logging=stderr --virtual-time-budget=2000 --user-data-dir='" +
                                folder_.file("profile") + "' " + arguments + " --dump-dom 'file://" + file +
                                "' > '" + dom + "' 2> '" + log + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << read_file(log);
    EXPECT_EQ(read_file(log).find("CONSOLE"), std::string::npos) << read_file(log);
    const std::string text = read_file(dom);
    const std::size_t begin = text.find("<title>") + 7;
    return nlohmann::json::parse(text.substr(begin, text.find("</title>") - begin), nullptr, false);
  }
};

TEST_F(HtmlReportInBrowser, ShowsItsFiguresOnAPhone) {
  const nlohmann::json answers = ask_on_phone();
  ASSERT_TRUE(answers.is_object());
  EXPECT_EQ(answers.at("window_width"), 390);
  EXPECT_LE(answers.at("page_width"), 390) << "the page scrolls sideways";
  EXPECT_EQ(answers.at("svgs"), 5);
  for (const char* what : {"median", "percent", "speedup", "kernel"}) {
    EXPECT_TRUE(answers.at(what).get<bool>()) << what << " is not to be seen";
  }
}

TEST_F(HtmlReportInBrowser, IsLightOrDarkAsTheReaderLikes) {
  const nlohmann::json light = ask("");
  const nlohmann::json dark = ask("--blink-settings=preferredColorScheme=0");
  ASSERT_TRUE(light.is_object());
  ASSERT_TRUE(dark.is_object());
  EXPECT_EQ(light.at("svgs"), 5);
  EXPECT_FALSE(light.at("dark").get<bool>());
  EXPECT_TRUE(dark.at("dark").get<bool>());
  EXPECT_EQ(light.at("background"), "rgb(255, 255, 255)");
  EXPECT_NE(light.at("background"), dark.at("background"));
  EXPECT_NE(light.at("ink"), dark.at("ink")) << "the figures keep their colour on the dark page";
}

}  // namespace
}  // namespace saccade
