// SPDX-License-Identifier: Apache-2.0 OR MIT
//! acme.rust_rows: float32 tables in host memory, in plain loops of Rust. It computes sums, means and sequences, with
//! weights or without. Backward updates rows ("fused") by any optimizer with states per row or per element.
mod abi;

use abi::*;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// The error of a call: its code and one sentence, or None if the caller's Error has been filled already.
struct Failure(Code, Option<String>);
type Result<T> = std::result::Result<T, Failure>;

fn refuse<T>(code: Code, text: String) -> Result<T> {
    Err(Failure(code, Some(text)))
}

/// Runs `body`, and fills the caller's Error if it fails or panics. Writes at most struct_size bytes of it.
unsafe fn guard(err: *mut Error, body: impl FnOnce() -> Result<()>) -> Code {
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| refuse(INTERNAL, "acme.rust_rows panicked: please report it".into()));
    let (code, text) = match result {
        Ok(()) => return OK,
        Err(Failure(code, None)) => return code,
        Err(Failure(code, Some(text))) => (code, text),
    };
    const HEAD: usize = 12; // bytes before the message
    let room = ((*err).struct_size as usize).saturating_sub(HEAD).min(500);
    if room > 0 {
        let mut length = text.len().min(room - 1);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        let message = std::ptr::addr_of_mut!((*err).message) as *mut u8;
        std::ptr::copy_nonoverlapping(text.as_ptr(), message, length);
        *message.add(length) = 0;
        (*err).code = code;
    }
    code
}

fn check_flags(flags: u32, known: u32, what: &str) -> Result<()> {
    if flags & MUST_UNDERSTAND & !known != 0 {
        return refuse(UNIMPLEMENTED, format!("acme.rust_rows does not know the flags {:#x} of {}", flags, what));
    }
    Ok(())
}

unsafe fn data<T>(tensor: *const Tensor) -> *mut T {
    (*tensor).data.wrapping_add((*tensor).byte_offset as usize) as *mut T
}
unsafe fn integer(tensor: *const Tensor, i: i64) -> i64 {
    match (*tensor).dtype.bits {
        64 => *data::<i64>(tensor).offset(i as isize),
        _ => i64::from(*data::<i32>(tensor).offset(i as isize)),
    }
}
unsafe fn strided<'a, T>(first: *const T, stride: u32, i: u32) -> &'a T {
    &*((first as *const u8).add(stride as usize * i as usize) as *const T)
}
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    CStr::from_ptr(text).to_str().unwrap_or("?")
}

/// Returns the states of an optimizer. Refuses kinds of states that this kernel does not have.
unsafe fn states_of(optimizer: *const Part) -> Result<Vec<State>> {
    let mut out = Vec::new();
    if optimizer.is_null() {
        return Ok(out);
    }
    let api = &*((*(*optimizer).component).api as *const Optimizer);
    check_flags(api.flags, 0, "an optimizer")?;
    while let Some(state) = api.state {
        let mut s = State {
            struct_size: std::mem::size_of::<State>() as u32,
            kind: 0,
            dtype: FLOAT32,
            flags: 0,
            start: 0.0,
            name: std::ptr::null(),
        };
        let mut err = Error { struct_size: std::mem::size_of::<Error>() as u32, code: OK, rank: -1, message: [0; 500] };
        match state((*optimizer).self_, out.len() as u32, &mut s, &mut err) {
            OK => (),
            OUT_OF_RANGE => break,
            code => return refuse(code, "acme.rust_rows: the optimizer does not tell its states".into()),
        }
        check_flags(s.flags, 0, "a state")?;
        if s.dtype != FLOAT32 || (s.kind != STATE_PER_ROW && s.kind != STATE_PER_ELEMENT) {
            return refuse(UNIMPLEMENTED, "acme.rust_rows keeps float32 states per row and per element only".into());
        }
        out.push(s);
    }
    Ok(out)
}

struct Shard {
    rows: usize,
    dim: usize,
    weights: Vec<f32>,
    states: Vec<(usize, Vec<f32>)>, // for each state: values per row, and the values of all rows
    lookups: u64,
}

fn filled(count: usize, value: f32) -> Result<Vec<f32>> {
    let mut out = Vec::new();
    match out.try_reserve_exact(count) {
        Ok(()) => out.resize(count, value),
        Err(_) => return refuse(RESOURCE_EXHAUSTED, format!("acme.rust_rows has no memory for {} values", count)),
    }
    Ok(out)
}

impl Shard {
    fn new(rows: usize, dim: usize, states: &[State]) -> Result<Shard> {
        let mut kept = Vec::new();
        for s in states {
            let width = if s.kind == STATE_PER_ROW { 1 } else { dim };
            kept.push((width, filled(rows.saturating_mul(width), s.start as f32)?));
        }
        Ok(Shard { rows, dim, weights: filled(rows.saturating_mul(dim), 0.0)?, states: kept, lookups: 0 })
    }
    fn row(&self, row: usize) -> &[f32] {
        &self.weights[row * self.dim..][..self.dim]
    }
}

/// One id of one bag.
struct Entry {
    position: i64, // in the batch's ids
    row: usize,
    place: isize, // first float of the output to which the row is added
    share: f32,   // factor on the row: its weight times `mean`
    mean: f32,    // 1 / length of the bag for MEAN, otherwise 1
}

unsafe fn each_entry(lookup: &Lookup, f: &LookupFeature, mut body: impl FnMut(Entry)) {
    let offset = |i: i64| integer(lookup.offsets, f.first_offset + i);
    let first = if f.bags == 0 { 0 } else { offset(0) };
    for bag in 0..f.bags {
        let (begin, end) = (offset(bag), offset(bag + 1));
        for p in begin..end {
            let line = if f.pooling == POOLING_NONE { p - first } else { bag };
            let weight = if lookup.weights.is_null() { 1.0 } else { *data::<f32>(lookup.weights).offset(p as isize) };
            let mean = if f.pooling == POOLING_MEAN { 1.0 / (end - begin) as f32 } else { 1.0 };
            let place = (f.output_offset + line * f.output_stride) as isize;
            body(Entry { position: p, row: integer(lookup.ids, p) as usize, place, share: weight * mean, mean });
        }
    }
}

struct Instance {
    shards: Vec<Shard>,
    optimizer: *const Part,
    most: f32, // limit of a gradient's element; 0: no limit
}

impl Instance {
    unsafe fn open(config: &KernelConfig) -> Result<Instance> {
        check(config)?;
        let states = states_of(config.optimizer)?;
        let mut shards = Vec::new();
        for t in 0..config.num_tables {
            let table = strided(config.tables, config.table_stride, t);
            shards.push(Shard::new(table.rows as usize, table.dim as usize, &states)?);
        }
        Ok(Instance { shards, optimizer: config.optimizer, most: config.max_gradient as f32 })
    }

    unsafe fn forward(&mut self, lookup: &Lookup, output: *const Tensor) -> Result<()> {
        check_flags(lookup.flags, LOOKUP_READ_ONLY, "a lookup")?;
        let out: *mut f32 = data(output);
        for i in 0..lookup.num_features {
            let f = strided(lookup.features, lookup.feature_stride, i);
            if f.pooling == POOLING_MAX {
                return refuse(UNIMPLEMENTED, "acme.rust_rows has no MAX pooling".into());
            }
            let shard = &mut self.shards[f.table as usize];
            let dim = shard.dim;
            let clear = |place: isize| slice::from_raw_parts_mut(out.offset(place), dim).fill(0.0);
            for bag in 0..(if f.pooling == POOLING_NONE { 0 } else { f.bags }) {
                clear((f.output_offset + bag * f.output_stride) as isize);
            }
            let mut lookups = 0;
            each_entry(lookup, f, |e| {
                if f.pooling == POOLING_NONE {
                    clear(e.place);
                }
                let to = slice::from_raw_parts_mut(out.offset(e.place), dim);
                to.iter_mut().zip(shard.row(e.row)).for_each(|(o, w)| *o += e.share * w);
                lookups += 1;
            });
            shard.lookups += lookups;
        }
        Ok(())
    }

    unsafe fn backward(&mut self, args: &Backward) -> Result<()> {
        check_flags(args.flags, 0, "a backward")?;
        check_flags((*args.lookup).flags, LOOKUP_READ_ONLY, "a lookup")?;
        check_flags((*args.update).flags, 0, "an update")?;
        let (lookup, gradients): (&Lookup, *const f32) = (&*args.lookup, data(args.grad_output));
        let mut sums: Vec<BTreeMap<usize, Vec<f32>>> = self.shards.iter().map(|_| BTreeMap::new()).collect();
        for i in 0..lookup.num_features {
            let f = strided(lookup.features, lookup.feature_stride, i);
            let shard = &self.shards[f.table as usize];
            each_entry(lookup, f, |e| {
                let reaching = |d: usize| {
                    let g = *gradients.offset(e.place).add(d) * args.grad_scale as f32;
                    if self.most > 0.0 { g.clamp(-self.most, self.most) } else { g }
                };
                let sum = sums[f.table as usize].entry(e.row).or_insert_with(|| vec![0.0; shard.dim]);
                sum.iter_mut().enumerate().for_each(|(d, s)| *s += e.share * reaching(d));
                if !args.grad_weights.is_null() {
                    let dot: f32 = shard.row(e.row).iter().enumerate().map(|(d, w)| reaching(d) * w).sum();
                    *data::<f32>(args.grad_weights).offset(e.position as isize) = dot * e.mean;
                }
            });
        }
        let api = &*((*(*self.optimizer).component).api as *const Optimizer);
        for (shard, sums) in self.shards.iter_mut().zip(sums) {
            for (row, sum) in sums {
                let states: Vec<*mut f32> =
                    shard.states.iter_mut().map(|(width, all)| all[row * *width..].as_mut_ptr()).collect();
                let weights = shard.weights[row * shard.dim..].as_mut_ptr();
                let update = api.update_row.unwrap(); // check() refuses optimizers without it
                update((*self.optimizer).self_, args.update, shard.dim as i64, weights, sum.as_ptr(), states.as_ptr());
            }
        }
        Ok(())
    }

    /// Calls copy(mine, theirs, values) for the weights and each state of a row.
    unsafe fn exchange(&mut self, table: u32, row: usize, rows: &Rows, at: usize, copy: fn(*mut f32, *mut f32, usize)) {
        let shard = &mut self.shards[table as usize];
        let dim = shard.dim;
        copy(shard.weights[row * dim..].as_mut_ptr(), data::<f32>(rows.weights).add(at * dim), dim);
        for (k, (width, all)) in shard.states.iter_mut().enumerate().take(rows.num_states as usize) {
            copy(all[row * *width..].as_mut_ptr(), data::<f32>(*rows.states.add(k)).add(at * *width), *width);
        }
    }
}

unsafe fn check(config: &KernelConfig) -> Result<()> {
    check_flags(config.flags, 0, "a config")?;
    if config.struct_size as usize >= std::mem::size_of::<KernelConfig>() && !config.row_format.is_null() {
        return refuse(UNIMPLEMENTED, format!("acme.rust_rows does not know rows of {}", text(config.row_format)));
    }
    if text(config.compute_kernel) != "fused" {
        return refuse(UNIMPLEMENTED, format!("acme.rust_rows has no compute kernel {}", text(config.compute_kernel)));
    }
    if config.device.device_type != CPU || config.weight_dtype != FLOAT32 || config.output_dtype != FLOAT32 {
        return refuse(UNIMPLEMENTED, "acme.rust_rows has float32 rows and outputs in host memory only".into());
    }
    for t in 0..config.num_tables {
        let table = strided(config.tables, config.table_stride, t);
        check_flags(table.flags, 0, "a table")?;
        if !table.options.is_null() {
            return refuse(INVALID_ARGUMENT, "tables of acme.rust_rows have no options".into());
        }
        if table.poolings & 1 << POOLING_MAX != 0 {
            return refuse(UNIMPLEMENTED, "acme.rust_rows has no MAX pooling".into());
        }
    }
    let updates = |p: *const Part| (*((*(*p).component).api as *const Optimizer)).update_row.is_some();
    if config.mode == 0 && (config.optimizer.is_null() || !updates(config.optimizer)) {
        return refuse(UNIMPLEMENTED, "acme.rust_rows updates rows, but the optimizer updates none".into());
    }
    states_of(config.optimizer).map(|_| ())
}

unsafe extern "C" fn supports(_: *mut c_void, config: *const KernelConfig, why: *mut Error) -> Code {
    guard(why, || check(&*config))
}
unsafe extern "C" fn open(_: *mut c_void, c: *const KernelConfig, out: *mut *mut c_void, err: *mut Error) -> Code {
    guard(err, || Instance::open(&*c).map(|made| *out = Box::into_raw(Box::new(made)) as *mut c_void))
}
unsafe fn instance<'a>(raw: *mut c_void) -> &'a mut Instance {
    &mut *(raw as *mut Instance)
}
unsafe extern "C" fn close(raw: *mut c_void) {
    drop(Box::from_raw(raw as *mut Instance));
}
unsafe extern "C" fn forward(
    raw: *mut c_void,
    lookup: *const Lookup,
    output: *const Tensor,
    _: *mut c_void,
    context: *mut *mut c_void,
    err: *mut Error,
) -> Code {
    let code = guard(err, || instance(raw).forward(&*lookup, output));
    if code == OK && !context.is_null() {
        *context = raw; // backward needs no other context than the instance
    }
    code
}
unsafe extern "C" fn backward(
    raw: *mut c_void,
    _: *mut c_void,
    args: *const Backward,
    _: *mut c_void,
    err: *mut Error,
) -> Code {
    guard(err, || instance(raw).backward(&*args))
}
unsafe extern "C" fn release(_: *mut c_void, _: *mut c_void) {}

unsafe extern "C" fn export_rows(
    raw: *mut c_void,
    table: u32,
    cursor: *mut u64,
    rows: *mut Rows,
    err: *mut Error,
) -> Code {
    guard(err, || {
        check_flags((*rows).flags, 0, "rows")?;
        let all = instance(raw).shards[table as usize].rows as u64;
        let count = (*(*(*rows).ids).shape as u64).min(all - (*cursor).min(all));
        for i in 0..count {
            *data::<i64>((*rows).ids).add(i as usize) = (*cursor + i) as i64;
            let out = |mine: *mut f32, theirs: *mut f32, n| unsafe { std::ptr::copy_nonoverlapping(mine, theirs, n) };
            instance(raw).exchange(table, (*cursor + i) as usize, &*rows, i as usize, out);
        }
        (*rows).count = count as i64;
        *cursor += count;
        Ok(())
    })
}
unsafe extern "C" fn import_rows(raw: *mut c_void, table: u32, rows: *const Rows, err: *mut Error) -> Code {
    guard(err, || {
        check_flags((*rows).flags, 0, "rows")?;
        for i in 0..(*rows).count {
            let row = integer((*rows).ids, i) as usize;
            let into = |mine: *mut f32, theirs: *mut f32, n| unsafe { std::ptr::copy_nonoverlapping(theirs, mine, n) };
            instance(raw).exchange(table, row, &*rows, i as usize, into);
        }
        Ok(())
    })
}
unsafe extern "C" fn stats(raw: *mut c_void, table: u32, out: *mut KernelStats, err: *mut Error) -> Code {
    guard(err, || {
        let shard = &instance(raw).shards[table as usize];
        let states: usize = shard.states.iter().map(|s| s.1.len()).sum();
        let all = KernelStats {
            struct_size: (*out).struct_size,
            extra_bytes: 0,
            weight_bytes: 4 * shard.weights.len() as u64,
            state_bytes: 4 * states as u64,
            other_bytes: 0,
            lookups: shard.lookups,
            rows_in_use: shard.rows as u64,
            hits: shard.lookups,
            evictions: 0,
        };
        let bytes = (all.struct_size as usize).min(std::mem::size_of::<KernelStats>()); // the caller's may be shorter
        std::ptr::copy_nonoverlapping(&all as *const KernelStats as *const u8, out as *mut u8, bytes);
        Ok(())
    })
}
unsafe extern "C" fn create(
    _: *const Component,
    _: *const c_void,
    options: *const c_char,
    _: *const Part,
    object: *mut *mut c_void,
    err: *mut Error,
) -> Code {
    guard(err, || match text(options).trim() {
        "{}" => {
            *object = std::ptr::null_mut(); // no object is needed
            Ok(())
        }
        other => refuse(INVALID_ARGUMENT, format!("acme.rust_rows has no options, not {}", other)),
    })
}
unsafe extern "C" fn destroy(_: *mut c_void) {}

const fn literal(text: &'static [u8]) -> *const c_char {
    text.as_ptr() as *const c_char
}

static COMPUTE_KERNELS: Table<[*const c_char; 2]> = Table([literal(b"fused\0"), std::ptr::null()]);
static DEVICE_TYPES: [i32; 2] = [CPU, 0];
static KERNEL: Table<Kernel> = Table(Kernel {
    struct_size: std::mem::size_of::<Kernel>() as u32,
    flags: 0,
    compute_kernels: &COMPUTE_KERNELS.0 as *const _ as *const *const c_char,
    device_types: &DEVICE_TYPES as *const _ as *const i32,
    supports,
    open,
    close,
    forward,
    backward,
    backward_rows: None,
    apply: None,
    release,
    export_rows,
    import_rows,
    stats,
    adopt_rows: None,
    read_rows: None,
});
static COMPONENT: Table<Component> = Table(Component {
    struct_size: std::mem::size_of::<Component>() as u32,
    priority: -10,
    id: literal(b"acme.rust_rows\0"),
    kind: literal(b"tessera.kernel/1\0"),
    version: literal(b"1.0.0\0"),
    about: literal(b"float32 tables in plain loops of Rust\0"),
    api: &KERNEL.0 as *const Kernel as *const c_void,
    probe: None,
    create: Some(create),
    destroy: Some(destroy),
    extension: None,
    data: std::ptr::null(),
});
static COMPONENTS: Table<[*const Component; 1]> = Table([&COMPONENT.0]);
static PLUGIN: Table<Plugin> = Table(Plugin {
    struct_size: std::mem::size_of::<Plugin>() as u32,
    abi_major: 1,
    epoch: 3,
    abi_minor: 0,
    min_host_minor: 0,
    num_components: 1,
    name: literal(b"acme-rust-rows\0"),
    version: literal(b"1.0.0\0"),
    build: literal(b"rustc\0"),
    components: &COMPONENTS.0 as *const _ as *const *const Component,
});

#[used]
#[link_section = ".note.tessera"]
static NOTE: Note<40> = Note {
    owner_size: 8,
    desc_size: 16 + 40,
    kind: 1,
    owner: *b"TESSERA\0",
    abi_major: 1,
    abi_minor: 0,
    min_host_minor: 0,
    epoch: 3,
    manifest: *b"tessera.kernel/1 acme.rust_rows 1.0.0\n\0\0",
};

/// # Safety
/// The arguments must be as tessera/abi/plugin.h requires.
#[no_mangle]
pub unsafe extern "C" fn tessera_plugin_v1(_: *const c_void, _: *mut Error) -> *const Plugin {
    &PLUGIN.0
}
