#include "core/config.h"

#include <gtest/gtest.h>

namespace saccade {
namespace {

TEST(Config, TakesWhatIsGivenAndDefaultsTheRest) {
  Config config("rows=16   keys=-3");
  EXPECT_EQ(config.take("rows", 1, 1, 100), 16);
  EXPECT_EQ(config.take("keys", 1, -5, 5), -3);
  EXPECT_EQ(config.take("threads", 7, 1, 8), 7);
  EXPECT_TRUE(config.finish("kernel").ok());
}

TEST(Config, EmptyTextIsAllDefaults) {
  EXPECT_TRUE(Config("").finish("kernel").ok());
  EXPECT_TRUE(Config(" \t ").finish("kernel").ok());
}

TEST(Config, TheLastOfTwoWins) {
  Config config("rows=1 rows=2");
  EXPECT_EQ(config.take("rows", 0, 0, 9), 2);
}

struct BadConfig {
  const char* text;
  const char* words;
};

class ConfigErrors : public testing::TestWithParam<BadConfig> {};

TEST_P(ConfigErrors, NameTheKernelAndTheSetting) {
  Config config(GetParam().text);
  EXPECT_EQ(config.take("rows", 4, 1, 8), 4) << "a bad value must not be used";
  const Status status = config.finish("some_kernel");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("some_kernel"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(GetParam().words), std::string::npos) << status.message();
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigErrors,
    testing::Values(BadConfig{"rows=0", "rows is '0'; it must be a whole number from 1 to 8"},
                    BadConfig{"rows=9", "rows is '9'"}, BadConfig{"rows=", "rows is ''"},
                    BadConfig{"rows=4x", "rows is '4x'"}, BadConfig{"rows=two", "rows is 'two'"},
                    BadConfig{"rows=99999999999", "rows is '99999999999'"},
                    BadConfig{"rows", "'rows' is not of the form key=value"},
                    BadConfig{"columns=3", "no setting 'columns'"}, BadConfig{"=3", "no setting ''"}));

}  // namespace
}  // namespace saccade
