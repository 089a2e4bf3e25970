/* Asks a packed model in plain C: prints its inputs, then the score of one sample whose ids and dense values are all 0.
 *
 *   ask_model MODEL [PLUGIN_DIRECTORY]
 *
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/infer.h>

/* Prints a description of the model; returns the number of its dense inputs, or -1. */
static int64_t describe(const tsr_model* model, uint32_t* num_features, tsr_error* err) {
  tsr_model_info info = {.struct_size = sizeof(info)};
  if (tsr_model_describe(model, &info, err) != TSR_OK) return -1;
  printf("%s %s: %lld dense inputs, %u features, %u tables\n", info.type, info.version, (long long)info.dense_inputs,
         info.num_features, info.num_tables);
  for (uint32_t i = 0; i < info.num_features; ++i) {
    tsr_model_feature feature = {.struct_size = sizeof(feature)};
    if (tsr_model_get_feature(model, i, &feature, err) != TSR_OK) return -1;
    printf("  %s: ids 0 to %lld\n", feature.name, (long long)feature.ids - 1);
  }
  *num_features = info.num_features;
  return info.dense_inputs;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: ask_model MODEL [PLUGIN_DIRECTORY]\n");
    return 2;
  }
  int status = 1;
  uint32_t num_features = 0;
  float* dense = NULL;
  tsr_model_ids* features = NULL;
  tsr_model* model = NULL;
  tsr_error err = {.struct_size = sizeof(err)};
  const tsr_model_options options = {.struct_size = sizeof(options), .plugin_path = argc > 2 ? argv[2] : NULL};
  if (tsr_model_open(argv[1], &options, &model, &err) != TSR_OK) goto done;
  const int64_t dense_inputs = describe(model, &num_features, &err);
  if (dense_inputs < 0) goto done;

  /* One sample: each feature has the single id 0. */
  static const int64_t id = 0;
  static const int32_t one = 1;
  dense = calloc((size_t)dense_inputs + 1, sizeof(float));
  features = calloc((size_t)num_features + 1, sizeof(tsr_model_ids));
  if (dense == NULL || features == NULL) goto done;
  for (uint32_t i = 0; i < num_features; ++i) {
    features[i] = (tsr_model_ids){.values = &id, .lengths = &one, .num_values = 1};
  }
  const tsr_model_input input = {
      .struct_size = sizeof(input), .num_features = num_features, .batch = 1, .dense = dense, .features = features};
  float score = 0;
  if (tsr_model_predict(model, &input, &score, &err) != TSR_OK) goto done;
  tsr_model_stats stats = {.struct_size = sizeof(stats)};
  if (tsr_model_get_stats(model, &stats, &err) != TSR_OK) goto done;
  printf("score %.6f (%llu prediction)\n", (double)score, (unsigned long long)stats.predictions);
  status = 0;

done:
  if (status != 0) fprintf(stderr, "ask_model: %s\n", err.message);
  tsr_model_close(model);
  free(features);
  free(dense);
  return status;
}
