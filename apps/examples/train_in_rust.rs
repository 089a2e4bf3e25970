// train_in_c.c in Rust, with no bindings but the declarations that it needs. Alone or on N ranks:
//
//   rustc -O train_in_rust.rs -L LIBRARY_FOLDER -l tessera
//   tessera launch -n 2 -- ./train_in_rust [CHECKPOINT_DIRECTORY]
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void};
use std::ptr::{null, null_mut};

const USERS: u64 = 500;
const FILMS: u64 = 300;
const DIM: usize = 8;
const BATCH: usize = 64;
const STEPS: usize = 300;
const MODEL: &str = r#"{"modules": [{"tables": [
    {"name": "user", "num_embeddings": 500, "embedding_dim": 8, "sharding_types": ["row_wise"]},
    {"name": "film", "num_embeddings": 300, "embedding_dim": 8, "sharding_types": ["table_wise"]}]}],
    "optimizer": {"name": "exact_rowwise_adagrad", "learning_rate": 0.1}}"#;

// tessera/tessera.h and the headers that it includes, as far as they are used here.
#[repr(C)]
struct Error {
    struct_size: u32,
    code: i32,
    rank: i32,
    message: [c_char; 500],
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: [i32; 2],
    ndim: i32,
    code: u8, // 0: int, 2: float
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct GroupInfo {
    struct_size: u32,
    rank: i32,
    world_size: i32,
    local_rank: i32,
    local_world_size: i32,
    reserved: i32,
    backend: *const c_char,
}

#[repr(C)]
struct ModelOptions {
    struct_size: u32,
    flags: u32,
    model: *const c_char,
    plan: *const c_char,
    planner: *const c_char,
}

#[repr(C)]
struct Batch {
    struct_size: u32,
    num_keys: u32,
    keys: *const *const c_char,
    values: *const DLTensor,
    lengths: *const DLTensor,
    offsets: *const DLTensor,
    weights: *const DLTensor,
    strides: *const i64,
    inverse: *const DLTensor,
    finished: i32,
    flags: u32,
    refused: *const c_char,
}

type Handle = *mut c_void;

extern "C" {
    fn tsr_runtime_open(options: *const c_void, out: *mut Handle, err: *mut Error) -> i32;
    fn tsr_runtime_close(runtime: Handle);
    fn tsr_process_group_connect(runtime: Handle, options: *const c_void, out: *mut Handle, err: *mut Error) -> i32;
    fn tsr_process_group_close(group: Handle);
    fn tsr_process_group_describe(group: Handle, info: *mut GroupInfo, err: *mut Error) -> i32;
    fn tsr_process_group_all_reduce(group: Handle, inout: *const DLTensor, op: i32, err: *mut Error) -> i32;
    fn tsr_process_group_barrier(group: Handle, err: *mut Error) -> i32;
    fn tsr_model_parallel_create(
        runtime: Handle, group: Handle, options: *const ModelOptions, out: *mut Handle, err: *mut Error) -> i32;
    fn tsr_model_parallel_close(model: Handle);
    fn tsr_model_parallel_collection(model: Handle, path: *const c_char, out: *mut Handle, err: *mut Error) -> i32;
    fn tsr_model_parallel_save(
        model: Handle, directory: *const c_char, options: *const c_void, err: *mut Error) -> i32;
    fn tsr_collection_close(collection: Handle);
    fn tsr_collection_forward(
        collection: Handle, batch: *const Batch, output: *const DLTensor, step: *mut Handle, err: *mut Error) -> i32;
    fn tsr_step_output(step: Handle, i: u32, view: *mut DLTensor, err: *mut Error) -> i32;
    fn tsr_step_backward(
        step: Handle, grads: *const *const DLTensor, num_grads: u32, options: *const c_void, err: *mut Error) -> i32;
    fn tsr_step_close(step: Handle);
}

// A handle and what closes it.
type Close = unsafe extern "C" fn(Handle);
struct Owned(Handle, Close);

impl Drop for Owned {
    fn drop(&mut self) {
        unsafe { (self.1)(self.0) }
    }
}

// Calls with an error struct; what is reported becomes an Err with the library's sentence.
fn call(function: impl FnOnce(*mut Error) -> i32) -> Result<(), String> {
    let mut err = Error { struct_size: std::mem::size_of::<Error>() as u32, code: 0, rank: -1, message: [0; 500] };
    match function(&mut err) {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(err.message.as_ptr()) }.to_string_lossy().into_owned()),
    }
}

fn opened(close: Close, open: impl FnOnce(*mut Handle, *mut Error) -> i32) -> Result<Owned, String> {
    let mut handle = null_mut();
    call(|err| open(&mut handle, err))?;
    Ok(Owned(handle, close))
}

fn tensor<T>(data: &mut [T], code: u8, shape: &[i64]) -> DLTensor {
    DLTensor {
        data: data.as_mut_ptr() as *mut c_void, device: [1, 0], ndim: shape.len() as i32, code,
        bits: 8 * std::mem::size_of::<T>() as u8, lanes: 1, shape: shape.as_ptr(), strides: null(), byte_offset: 0,
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % bound) as i64
    }
}

// One step on a batch of this rank: looks up, and learns. The mean loss.
fn train(group: &Owned, ranks: i32, tables: &Owned, random: &mut Random, bias: &mut f32) -> Result<f32, String> {
    let mut ids: Vec<i64> = (0..BATCH).map(|_| random.below(USERS)).collect(); // all users, then all films
    ids.extend((0..BATCH).map(|_| random.below(FILMS)));
    let labels: Vec<bool> = (0..BATCH).map(|i| ids[i] % 2 == ids[BATCH + i] % 2).collect(); // what is to be learnt
    let (mut lengths, both) = (vec![1i64; 2 * BATCH], [2 * BATCH as i64]);
    let (values, ones) = (tensor(&mut ids, 0, &both), tensor(&mut lengths, 0, &both));
    let batch = Batch {
        struct_size: std::mem::size_of::<Batch>() as u32, num_keys: 2, keys: null(), values: &values, lengths: &ones,
        offsets: null(), weights: null(), strides: null(), inverse: null(), finished: 0, flags: 0, refused: null(),
    };
    let forward = |out, err| unsafe { tsr_collection_forward(tables.0, &batch, null(), out, err) };
    let step = opened(tsr_step_close, forward)?;
    let mut pooled = tensor::<f32>(&mut [], 2, &[]);
    call(|err| unsafe { tsr_step_output(step.0, 0, &mut pooled, err) })?;
    let rows = unsafe { std::slice::from_raw_parts(pooled.data as *const f32, 2 * DIM * BATCH) };
    let (mut grad, mut of_bias, mut loss) = (vec![0f32; 2 * DIM * BATCH], [0f32], 0f32);
    for (i, row) in rows.chunks(2 * DIM).enumerate() { // the user's columns, then the film's
        let logit = *bias + (0..DIM).map(|d| row[d] * row[DIM + d]).sum::<f32>();
        let p = 1.0 / (1.0 + (-logit).exp());
        let g = (p - labels[i] as i32 as f32) / BATCH as f32;
        loss -= (if labels[i] { p } else { 1.0 - p }).ln() / BATCH as f32;
        of_bias[0] += g;
        for d in 0..2 * DIM {
            grad[i * 2 * DIM + d] = g * row[(d + DIM) % (2 * DIM)];
        }
    }
    let shape = [BATCH as i64, 2 * DIM as i64];
    let (of_rows, dense) = (tensor(&mut grad, 2, &shape), tensor(&mut of_bias, 2, &[1]));
    let grads = [&of_rows as *const DLTensor];
    call(|err| unsafe { tsr_step_backward(step.0, grads.as_ptr(), 1, null(), err) })?; // updates the rows
    call(|err| unsafe { tsr_process_group_all_reduce(group.0, &dense, 0, err) })?; // the dense part: a sum over ranks
    *bias -= 0.1 * of_bias[0] / ranks as f32;
    Ok(loss)
}

fn run() -> Result<(), String> {
    let runtime = opened(tsr_runtime_close, |out, err| unsafe { tsr_runtime_open(null(), out, err) })?;
    let connect = |out, err| unsafe { tsr_process_group_connect(runtime.0, null(), out, err) };
    let group = opened(tsr_process_group_close, connect)?; // the ranks that a launcher has started
    let mut who = GroupInfo {
        struct_size: std::mem::size_of::<GroupInfo>() as u32, rank: 0, world_size: 0, local_rank: 0,
        local_world_size: 0, reserved: 0, backend: null(),
    };
    call(|err| unsafe { tsr_process_group_describe(group.0, &mut who, err) })?;
    let text = CString::new(MODEL).unwrap();
    let options = ModelOptions {
        struct_size: std::mem::size_of::<ModelOptions>() as u32, flags: 0, model: text.as_ptr(), plan: null(),
        planner: null(),
    };
    let create = |out, err| unsafe { tsr_model_parallel_create(runtime.0, group.0, &options, out, err) };
    let model = opened(tsr_model_parallel_close, create)?;
    let path = CString::new("").unwrap();
    let find = |out, err| unsafe { tsr_model_parallel_collection(model.0, path.as_ptr(), out, err) };
    let tables = opened(tsr_collection_close, find)?;
    let (mut random, mut bias) = (Random(who.rank as u64 + 1), 0f32); // every rank has samples of its own
    for step in 1..=STEPS {
        let loss = train(&group, who.world_size, &tables, &mut random, &mut bias)?;
        if who.rank == 0 && step % 100 == 0 {
            println!("step {}, loss {:.4}", step, loss);
        }
    }
    if let Some(directory) = std::env::args().nth(1) {
        let directory = CString::new(directory).unwrap();
        call(|err| unsafe { tsr_model_parallel_save(model.0, directory.as_ptr(), null(), err) })?;
    }
    call(|err| unsafe { tsr_process_group_barrier(group.0, err) }) // nobody leaves while another one needs it
}

fn main() {
    if let Err(sentence) = run() {
        eprintln!("train_in_rust: {}", sentence);
        std::process::exit(1);
    }
}
