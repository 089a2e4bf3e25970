/* Trains two sharded tables in plain C: does this user like that film? It is the C version of the program in
 * docs/cpp_api.md and runs on one rank or on N:
 *
 *   tessera launch -n 2 -- train_in_c [CHECKPOINT_DIRECTORY]
 *
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { kUsers = 500, kFilms = 300, kDim = 8, kBatch = 64, kSteps = 300, kWidth = 2 * kDim };

static const char model_text[] =
    "{\"modules\": [{\"tables\": ["
    "{\"name\": \"user\", \"num_embeddings\": 500, \"embedding_dim\": 8, \"sharding_types\": [\"row_wise\"]},"
    "{\"name\": \"film\", \"num_embeddings\": 300, \"embedding_dim\": 8, \"sharding_types\": [\"table_wise\"]}]}],"
    "\"optimizer\": {\"name\": \"exact_rowwise_adagrad\", \"learning_rate\": 0.1}}";

static DLTensor tensor(void* data, uint8_t code, uint8_t bits, int64_t* shape, int32_t ndim) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {code, bits, 1}, .shape = shape};
}

/* Trains one step on this rank's batch. *loss is the mean loss. */
static tsr_code train(tsr_process_group* group, tsr_collection* tables, float* bias, float* loss, tsr_error* err) {
  int64_t ids[2 * kBatch], lengths[2 * kBatch], num_ids = 2 * kBatch, rows_shape[2] = {kBatch, kWidth}, one = 1;
  float grad[kBatch * kWidth], bias_grad = 0;
  for (int i = 0; i < kBatch; ++i) { /* all users of the batch, then all films */
    ids[i] = rand() % kUsers, ids[kBatch + i] = rand() % kFilms;
    lengths[i] = lengths[kBatch + i] = 1;
  }
  const DLTensor values = tensor(ids, kDLInt, 64, &num_ids, 1), ones = tensor(lengths, kDLInt, 64, &num_ids, 1);
  const tsr_batch batch = {.struct_size = sizeof(batch), .num_keys = 2, .values = &values, .lengths = &ones};
  tsr_step* step = NULL;
  DLTensor pooled;
  tsr_code code = tsr_collection_forward(tables, &batch, NULL, &step, err);
  if (code == TSR_OK) code = tsr_step_output(step, 0, &pooled, err);
  if (code != TSR_OK) return code;
  *loss = 0;
  for (int i = 0; i < kBatch; ++i) {
    const float* row = (const float*)pooled.data + (size_t)i * kWidth; /* the user's columns, then the film's */
    const float label = ids[i] % 2 == ids[kBatch + i] % 2;             /* the taste to learn */
    float logit = *bias;
    for (int d = 0; d < kDim; ++d) logit += row[d] * row[kDim + d];
    const float p = 1 / (1 + expf(-logit)), g = (p - label) / kBatch;
    *loss -= logf(label > 0 ? p : 1 - p) / kBatch;
    bias_grad += g;
    for (int d = 0; d < kWidth; ++d) grad[i * kWidth + d] = g * row[(d + kDim) % kWidth];
  }
  const DLTensor grad_rows = tensor(grad, kDLFloat, 32, rows_shape, 2),
                 dense = tensor(&bias_grad, kDLFloat, 32, &one, 1);
  const DLTensor* const grads[] = {&grad_rows};
  code = tsr_step_backward(step, grads, 1, NULL, err); /* rows are updated on the ranks that own them */
  tsr_step_close(step);
  if (code == TSR_OK) code = tsr_process_group_all_reduce(group, &dense, 0, err); /* sums the dense part over ranks */
  tsr_process_group_info info = {.struct_size = sizeof(info)};
  if (code == TSR_OK) code = tsr_process_group_describe(group, &info, err);
  if (code == TSR_OK) *bias -= 0.1f * bias_grad / (float)info.world_size;
  return code;
}

int main(int argc, char** argv) {
  tsr_error err = {.struct_size = sizeof(err)};
  tsr_runtime* runtime = NULL;
  tsr_process_group* group = NULL;
  tsr_model_parallel* model = NULL;
  tsr_collection* tables = NULL;
  tsr_process_group_info who = {.struct_size = sizeof(who)};
  const tsr_model_parallel_options options = {.struct_size = sizeof(options), .model = model_text};
  float bias = 0, loss = 0;
  tsr_code code = tsr_runtime_open(NULL, &runtime, &err); /* finds the plugins */
  if (code == TSR_OK) code = tsr_process_group_connect(runtime, NULL, &group, &err);
  if (code == TSR_OK) code = tsr_process_group_describe(group, &who, &err);
  if (code == TSR_OK) code = tsr_model_parallel_create(runtime, group, &options, &model, &err);
  if (code == TSR_OK) code = tsr_model_parallel_collection(model, "", &tables, &err);
  srand((unsigned)who.rank + 1); /* every rank has samples of its own */
  for (int step = 1; code == TSR_OK && step <= kSteps; ++step) {
    code = train(group, tables, &bias, &loss, &err);
    if (code == TSR_OK && who.rank == 0 && step % 100 == 0) printf("step %d, loss %.4f\n", step, (double)loss);
  }
  if (code == TSR_OK && argc > 1) code = tsr_model_parallel_save(model, argv[1], NULL, &err);
  if (code == TSR_OK) code = tsr_process_group_barrier(group, &err); /* no rank leaves while another needs it */
  if (code != TSR_OK) fprintf(stderr, "train_in_c: %s\n", err.message);
  tsr_collection_close(tables);
  tsr_model_parallel_close(model);
  tsr_process_group_close(group);
  tsr_runtime_close(runtime);
  return code == TSR_OK ? 0 : 1;
}
