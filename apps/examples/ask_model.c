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

static DLTensor tensor(void* data, uint8_t code, uint8_t bits, int64_t* shape, int32_t ndim) {
  return (DLTensor){
      .data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape, .byte_offset = 0};
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: ask_model MODEL [PLUGIN_DIRECTORY]\n");
    return 2;
  }
  int status = 1;
  uint32_t num_features = 0;
  float* dense = NULL;
  const DLTensor **ids = NULL, **lengths = NULL;
  tsr_model* model = NULL;
  tsr_error err = {.struct_size = sizeof(err)};
  const tsr_model_options options = {.struct_size = sizeof(options), .plugin_path = argc > 2 ? argv[2] : NULL};
  if (tsr_model_open(argv[1], &options, &model, &err) != TSR_OK) goto done;
  const int64_t dense_inputs = describe(model, &num_features, &err);
  if (dense_inputs < 0) goto done;

  /* One sample: each feature has the single id 0. Several features may share a tensor. */
  static int64_t id = 0;
  static int32_t one = 1;
  float score = 0;
  int64_t shape[] = {1, dense_inputs};
  const DLTensor id_tensor = tensor(&id, kDLInt, 64, shape, 1), one_tensor = tensor(&one, kDLInt, 32, shape, 1),
                 score_tensor = tensor(&score, kDLFloat, 32, shape, 1);
  dense = calloc((size_t)dense_inputs + 1, sizeof(float));
  ids = calloc((size_t)num_features + 1, sizeof(*ids));
  lengths = calloc((size_t)num_features + 1, sizeof(*lengths));
  if (dense == NULL || ids == NULL || lengths == NULL) goto done;
  for (uint32_t i = 0; i < num_features; ++i) {
    ids[i] = &id_tensor;
    lengths[i] = &one_tensor;
  }
  const DLTensor dense_tensor = tensor(dense, kDLFloat, 32, shape, 2);
  const DLTensor* const outputs[] = {&score_tensor}; /* only the first one */
  const tsr_model_input input = {.struct_size = sizeof(input),
                                 .num_features = num_features,
                                 .dense = &dense_tensor,
                                 .values = ids,
                                 .lengths = lengths};
  if (tsr_model_predict(model, &input, outputs, 1, &err) != TSR_OK) goto done;
  tsr_model_stats stats = {.struct_size = sizeof(stats)};
  if (tsr_model_get_stats(model, &stats, &err) != TSR_OK) goto done;
  printf("score %.6f (%llu prediction)\n", (double)score, (unsigned long long)stats.predictions);
  status = 0;

done:
  if (status != 0) fprintf(stderr, "ask_model: %s\n", err.message);
  tsr_model_close(model);
  free(ids);
  free(lengths);
  free(dense);
  return status;
}
