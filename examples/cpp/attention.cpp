// Grouped-query causal attention in C++: describe the problem, plan once, run, check one row by hand.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include <saccade/plan.h>
#include <saccade/problem.h>
#include <saccade/run.h>

namespace {

/// The last query of the last head sees every key, so its answer is a plain softmax: easy to do by hand.
double last_row_error(const saccade::Problem& p, const std::vector<float>& q, const std::vector<float>& k,
                      const std::vector<float>& v, const std::vector<float>& o) {
  const auto dim = static_cast<std::size_t>(p.dim_qk);
  const auto keys = static_cast<std::size_t>(p.len_kv);
  const std::size_t last_query = q.size() - dim;
  const std::size_t last_head_kv = k.size() - keys * dim;
  std::vector<double> expected(dim, 0.0);
  double total = 0;
  for (std::size_t j = 0; j < keys; ++j) {
    double dot = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      dot += double{q[last_query + d]} * double{k[last_head_kv + j * dim + d]};
    }
    const double weight = std::exp(dot * double{p.effective_scale()});
    total += weight;
    for (std::size_t d = 0; d < dim; ++d) expected[d] += weight * double{v[last_head_kv + j * dim + d]};
  }
  double worst = 0;
  for (std::size_t d = 0; d < dim; ++d) {
    worst = std::max(worst, std::abs(expected[d] / total - double{o[last_query + d]}));
  }
  return worst;
}

}  // namespace

int main() {
  // The same as saccade::parse_problem("b2 h8/2 l128 d64 f32 causal").
  saccade::Problem problem = saccade::Problem::dense(2, 8, 128, 64, saccade::DType::f32);
  problem.heads_kv = 2;  // four query heads share one key head
  problem.causal = true;
  problem.pack();

  const saccade::Result<saccade::Plan> plan = saccade::make_plan(problem);
  if (!plan.ok()) {
    std::fprintf(stderr, "no plan: %s\n", plan.status().message().c_str());
    return 1;
  }
  std::fputs(plan->explain().c_str(), stdout);

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto tensor = [&](std::int64_t heads) {
    std::vector<float> data(static_cast<std::size_t>(problem.batch * heads * problem.len_q * problem.dim_qk));
    for (float& x : data) x = normal(random);
    return data;
  };
  const std::vector<float> q = tensor(problem.heads_q);
  const std::vector<float> k = tensor(problem.heads_kv);
  const std::vector<float> v = tensor(problem.heads_kv);
  std::vector<float> o(q.size());

  // run() allocates nothing, so the scratch memory is ours: make it once, use it for every call.
  const std::align_val_t alignment{saccade::kWorkspaceAlignment};
  const auto release = [&](void* data) { ::operator delete(data, alignment); };
  const std::unique_ptr<void, decltype(release)> workspace(::operator new(plan->workspace_bytes(), alignment),
                                                           release);
  const saccade::Status status =
      saccade::run(plan.value(), {.q = q.data(), .k = k.data(), .v = v.data(), .o = o.data()},
                   {workspace.get(), plan->workspace_bytes()});
  if (!status.ok()) {
    std::fprintf(stderr, "run failed: %s\n", status.message().c_str());
    return 1;
  }
  const double error = last_row_error(problem, q, k, v, o);
  std::printf("largest error of the last row against double: %.2e\n", error);
  return error < 1e-5 ? 0 : 1;
}
