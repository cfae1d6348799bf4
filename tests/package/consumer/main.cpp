#include <array>
#include <cmath>
#include <cstdio>

#include <saccade/attention.h>
#include <saccade/saccade.h>

int main() {
  const std::array<float, 4> q{1, 0, 0, 1}, k{1, 2, 3, 4}, v{5, 6, 5, 6};
  std::array<float, 4> o{};
  const auto view = [](const auto& x) {
    return saccade::View::packed(x.data(), saccade::DType::f32, {1, 1, 2, 2});
  };
  const saccade::Status status = saccade::attention(view(q), view(k), view(v), view(o));
  std::printf("saccade %s: %g %g, expected 5 and 6. %s\n", saccade_version(), o[0], o[3],
              status.message().c_str());
  return status.ok() && std::abs(o[0] - 5) < 1e-4F && std::abs(o[3] - 6) < 1e-4F ? 0 : 1;
}
