/* Decoding in C: one new query a head against a cache of keys, with the log-sum-exp, through the C interface.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <saccade/saccade.h>

enum { HEADS = 4, KEYS = 1000, DIM = 64 };

/* A number in [-1, 1) from a linear congruential generator: the example needs no better. */
static float next_random(uint32_t* state) {
  *state = *state * 1664525U + 1013904223U;
  return (float)(*state >> 8) / (float)(1U << 23) - 1.0F;
}

static int failed(const char* what) {
  fprintf(stderr, "%s failed: %s\n", what, saccade_last_error());
  return 1;
}

/* The log-sum-exp of one head, by hand. */
static double expected_lse(const float* q, const float* k) {
  double total = 0;
  for (int j = 0; j < KEYS; ++j) {
    double dot = 0;
    for (int d = 0; d < DIM; ++d) dot += (double)q[d] * (double)k[j * DIM + d];
    total += exp(dot / sqrt(DIM));
  }
  return log(total);
}

int main(void) {
  static float q[HEADS * DIM], k[HEADS * KEYS * DIM], v[HEADS * KEYS * DIM], o[HEADS * DIM], lse[HEADS];
  uint32_t state = 1;
  for (int i = 0; i < HEADS * DIM; ++i) q[i] = next_random(&state);
  for (int i = 0; i < HEADS * KEYS * DIM; ++i) k[i] = next_random(&state);
  for (int i = 0; i < HEADS * KEYS * DIM; ++i) v[i] = next_random(&state);

  saccade_problem problem;
  if (saccade_problem_init(&problem, SACCADE_F32, 1, HEADS, HEADS, 1, KEYS, DIM, DIM) != SACCADE_OK) {
    return failed("saccade_problem_init");
  }
  problem.lse = 1;

  saccade_plan* plan = NULL;
  if (saccade_plan_create(&problem, NULL, &plan) != SACCADE_OK) return failed("saccade_plan_create");
  printf("saccade %s\n%s", saccade_version(), saccade_plan_explain(plan));

  /* aligned_alloc wants a multiple of the alignment. */
  const size_t needed = saccade_plan_workspace_bytes(plan);
  const size_t rounded = (needed / SACCADE_WORKSPACE_ALIGNMENT + 1) * (size_t)SACCADE_WORKSPACE_ALIGNMENT;
  void* workspace = aligned_alloc(SACCADE_WORKSPACE_ALIGNMENT, rounded);
  const saccade_tensors tensors = {
      .struct_size = sizeof(saccade_tensors), .q = q, .k = k, .v = v, .o = o, .lse = lse};
  const saccade_status status = saccade_run(plan, &tensors, workspace, rounded, NULL);
  free(workspace);
  saccade_plan_destroy(plan);
  if (status != SACCADE_OK) return failed("saccade_run");

  double worst = 0;
  for (int h = 0; h < HEADS; ++h) {
    worst = fmax(worst, fabs(lse[h] - expected_lse(q + h * DIM, k + h * KEYS * DIM)));
  }
  printf("largest error of the log-sum-exp: %.2e\n", worst);
  return worst < 1e-4 ? 0 : 1;
}
