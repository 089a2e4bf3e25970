// SPDX-License-Identifier: Apache-2.0 OR MIT
// The structs of tessera/abi/*.h that a kernel needs, in Rust, with the same members in the same order. The headers
// explain them.
use std::os::raw::{c_char, c_void};

pub type Code = i32;
pub const OK: Code = 0;
pub const INVALID_ARGUMENT: Code = 3;
pub const RESOURCE_EXHAUSTED: Code = 8;
pub const OUT_OF_RANGE: Code = 11;
pub const UNIMPLEMENTED: Code = 12;
pub const INTERNAL: Code = 13;

pub const MUST_UNDERSTAND: u32 = 0xFFFF_0000;
pub const LOOKUP_READ_ONLY: u32 = 1 << 16;
pub const POOLING_NONE: i32 = 0;
pub const POOLING_MEAN: i32 = 2;
pub const POOLING_MAX: i32 = 3;
pub const STATE_PER_ROW: i32 = 0;
pub const STATE_PER_ELEMENT: i32 = 1;
pub const CPU: i32 = 1;
pub const FLOAT32: DataType = DataType { code: 2, bits: 32, lanes: 1 };

#[repr(C)]
pub struct Error {
    pub struct_size: u32,
    pub code: Code,
    pub rank: i32,
    pub message: [u8; 500],
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Device {
    pub device_type: i32,
    pub device_id: i32,
}

#[repr(C)]
pub struct Tensor {
    pub data: *mut u8,
    pub device: Device,
    pub ndim: i32,
    pub dtype: DataType,
    pub shape: *const i64,
    pub strides: *const i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub struct Part {
    pub component: *const Component,
    pub self_: *mut c_void,
}

#[repr(C)]
pub struct Component {
    pub struct_size: u32,
    pub priority: i32,
    pub id: *const c_char,
    pub kind: *const c_char,
    pub version: *const c_char,
    pub about: *const c_char,
    pub api: *const c_void,
    pub probe: Option<unsafe extern "C" fn(*const Component, *const c_void, *mut Error) -> Code>,
    pub create: Option<
        unsafe extern "C" fn(
            *const Component,
            *const c_void,
            *const c_char,
            *const Part,
            *mut *mut c_void,
            *mut Error,
        ) -> Code,
    >,
    pub destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    pub extension: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> *const c_void>,
    pub data: *const c_void,
}

#[repr(C)]
pub struct Plugin {
    pub struct_size: u32,
    pub abi_major: u32,
    pub epoch: u32,
    pub abi_minor: u32,
    pub min_host_minor: u32,
    pub num_components: u32,
    pub name: *const c_char,
    pub version: *const c_char,
    pub build: *const c_char,
    pub components: *const *const Component,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct State {
    pub struct_size: u32,
    pub kind: i32,
    pub dtype: DataType,
    pub flags: u32,
    pub start: f64,
    pub name: *const c_char,
}

#[repr(C)]
pub struct Update {
    pub struct_size: u32,
    pub flags: u32,
    pub learning_rate: f64,
    pub step: i64,
}

#[repr(C)]
pub struct Optimizer {
    pub struct_size: u32,
    pub flags: u32,
    pub state: Option<unsafe extern "C" fn(*mut c_void, u32, *mut State, *mut Error) -> Code>,
    pub learning_rate: Option<unsafe extern "C" fn(*mut c_void) -> f64>,
    pub update_row:
        Option<unsafe extern "C" fn(*mut c_void, *const Update, i64, *mut f32, *const f32, *const *mut f32)>,
}

#[repr(C)]
pub struct KernelTable {
    pub struct_size: u32,
    pub flags: u32,
    pub name: *const c_char,
    pub rows: i64,
    pub dim: i64,
    pub options: *const c_char,
    pub poolings: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct KernelConfig {
    pub struct_size: u32,
    pub flags: u32,
    pub mode: i32,
    pub reserved: u32,
    pub compute_kernel: *const c_char,
    pub device: Device,
    pub weight_dtype: DataType,
    pub output_dtype: DataType,
    pub num_tables: u32,
    pub table_stride: u32,
    pub tables: *const KernelTable,
    pub optimizer: *const Part,
    pub optimizer_options: *const c_char,
    pub max_gradient: f64,
    pub start_values: *const c_void,
    pub row_format: *const c_char,
}

#[repr(C)]
pub struct LookupFeature {
    pub table: i32,
    pub pooling: i32,
    pub bags: i64,
    pub first_offset: i64,
    pub output_offset: i64,
    pub output_stride: i64,
    pub output: u32,
    pub listed: i32,
}

#[repr(C)]
pub struct Lookup {
    pub struct_size: u32,
    pub flags: u32,
    pub num_features: u32,
    pub feature_stride: u32,
    pub num_outputs: u32,
    pub reserved: u32,
    pub features: *const LookupFeature,
    pub ids: *const Tensor,
    pub offsets: *const Tensor,
    pub weights: *const Tensor,
}

#[repr(C)]
pub struct Backward {
    pub struct_size: u32,
    pub flags: u32,
    pub lookup: *const Lookup,
    pub grad_output: *const Tensor,
    pub grad_weights: *const Tensor,
    pub grad_scale: f64,
    pub update: *const Update,
}

#[repr(C)]
pub struct Rows {
    pub struct_size: u32,
    pub flags: u32,
    pub num_states: u32,
    pub extra_stride: u32,
    pub count: i64,
    pub ids: *const Tensor,
    pub weights: *const Tensor,
    pub states: *const *const Tensor,
}

#[repr(C)]
pub struct KernelStats {
    pub struct_size: u32,
    pub extra_bytes: u32,
    pub weight_bytes: u64,
    pub state_bytes: u64,
    pub other_bytes: u64,
    pub lookups: u64,
    pub rows_in_use: u64,
    pub hits: u64,
    pub evictions: u64,
}

type Absent = Option<unsafe extern "C" fn()>; // the type of functions that this kernel does not have
#[repr(C)]
pub struct Kernel {
    pub struct_size: u32,
    pub flags: u32,
    pub compute_kernels: *const *const c_char,
    pub device_types: *const i32,
    pub supports: unsafe extern "C" fn(*mut c_void, *const KernelConfig, *mut Error) -> Code,
    pub open: unsafe extern "C" fn(*mut c_void, *const KernelConfig, *mut *mut c_void, *mut Error) -> Code,
    pub close: unsafe extern "C" fn(*mut c_void),
    pub forward: unsafe extern "C" fn(
        *mut c_void,
        *const Lookup,
        *const Tensor,
        *mut c_void,
        *mut *mut c_void,
        *mut Error,
    ) -> Code,
    pub backward:
        unsafe extern "C" fn(*mut c_void, *mut c_void, *const Backward, *mut c_void, *mut Error) -> Code,
    pub backward_rows: Absent,
    pub apply: Absent,
    pub release: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub export_rows: unsafe extern "C" fn(*mut c_void, u32, *mut u64, *mut Rows, *mut Error) -> Code,
    pub import_rows: unsafe extern "C" fn(*mut c_void, u32, *const Rows, *mut Error) -> Code,
    pub stats: unsafe extern "C" fn(*mut c_void, u32, *mut KernelStats, *mut Error) -> Code,
    pub adopt_rows: Absent,
    pub read_rows: Absent,
}

#[repr(C, align(4))]
pub struct Note<const N: usize> {
    pub owner_size: u32,
    pub desc_size: u32,
    pub kind: u32,
    pub owner: [u8; 8],
    pub abi_major: u32,
    pub abi_minor: u32,
    pub min_host_minor: u32,
    pub epoch: u32,
    pub manifest: [u8; N],
}

/// A constant that contains pointers.
pub struct Table<T>(pub T);
unsafe impl<T> Sync for Table<T> {}
