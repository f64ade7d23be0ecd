//! Keys and values: storing and moving them. Their layout is in `kv.cuh`.

use hf2q_plan::{
    BackendError, Cache, CacheId, GroupId, KvFormat, KvStore, KvVector, Op, PAGE, Recording, RowKind,
};

use super::{Arguments, Call, Cx, Grid, Rows, launch_ahead};
use crate::backend::NAME;
use crate::compile::{Compiler, small};
use crate::error::CudaError;
use crate::library::Function;
use crate::sources::Variant;

const THREADS: usize = 128;

/// Most components of a head: the kernel's `WIDEST`.
const WIDEST: usize = 2048;

fn variant() -> Variant {
    Variant::plain("kv_store")
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// `struct Vectors` of the kernels: how the keys or the values of a head are stored.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Vectors {
    format: u32,
    bits: u32,
    scales: u32,
    block: u32,
    words: u32,
    padding: u32,
    levels: u64,
}

/// `struct Cache` of the kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CacheArgs {
    data: u64,
    kv_heads: u32,
    head_dim: u32,
    keys: Vectors,
    values: Vectors,
}

impl CacheArgs {
    pub(crate) fn kv_heads(&self) -> usize {
        self.kv_heads as usize
    }

    pub(crate) fn head_dim(&self) -> usize {
        self.head_dim as usize
    }

    pub(crate) fn stores_keys(&self) -> bool {
        self.keys.words != 0
    }
}

/// A cache on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCache {
    pub(crate) args: CacheArgs,
    pub(crate) group: GroupId,
}

/// The kernels' number of a format.
fn format_code(format: KvFormat) -> u32 {
    match format {
        KvFormat::F32 => 0,
        KvFormat::F16 => 1,
        KvFormat::Bf16 => 2,
        KvFormat::Q8_0 => 3,
        KvFormat::Tq2 => 4,
        KvFormat::Tq3 => 5,
        KvFormat::Tq4 => 6,
        KvFormat::Tq5 => 7,
        KvFormat::Tq6 => 8,
        KvFormat::Tq8 => 9,
        _ => unreachable!("formats of KvFormat::ALL have a number"),
    }
}

/// Words of a page's block of vectors: whole groups of 32 components, then scales.
fn words(vector: KvVector) -> usize {
    vector.head_dim.div_ceil(32) * vector.format.bits() * PAGE + vector.scales() * PAGE / 2
}

fn vectors(c: &mut Compiler<'_>, vector: KvVector) -> Result<Vectors, BackendError> {
    let levels = match vector.format.turbo() {
        None => 0,
        Some(turbo) => {
            let all = turbo.values().iter().chain(turbo.thresholds());
            let bytes: Vec<u8> = all.flat_map(|x| x.to_le_bytes()).collect();
            c.constant("levels of a cache's format", &bytes)?
        }
    };
    Ok(Vectors {
        format: format_code(vector.format),
        bits: small(vector.format.bits())?,
        scales: small(vector.scales())?,
        block: small(vector.block().unwrap_or(vector.head_dim))?,
        words: small(words(vector))?,
        padding: 0,
        levels,
    })
}

/// Why a cache cannot be stored, if it cannot.
fn refused(cache: &Cache) -> Option<String> {
    let head_dim = cache.head_dim;
    if head_dim == 0 || head_dim > WIDEST {
        return Some(format!("heads of {head_dim}, accepted are 1 to {WIDEST}"));
    }
    cache.cut().map(|_| {
        format!(
            "keys are formed of values in {}, whose components are then stored in another order than their own: choose \
             another format, for example q8_0, or different ones for keys and values",
            cache.values().format.name()
        )
    })
}

/// The cache of a layer, allocated when it is first asked for.
pub(crate) fn cache(c: &mut Compiler<'_>, id: CacheId) -> Result<DeviceCache, BackendError> {
    if let Some(known) = c.caches.get(&id.index()) {
        return Ok(*known);
    }
    let cache = c.recording.cache(id).clone();
    if let Some(why) = refused(&cache) {
        return Err(BackendError::Unsupported { backend: NAME, op: cache.name, why });
    }
    let keys = cache.keys().map(|k| vectors(c, k)).transpose()?.unwrap_or_default();
    let values = vectors(c, cache.values())?;
    let page_bytes = cache.kv_heads * (keys.words + values.words) as usize * size_of::<u32>();
    let pages = c.limits.pages[cache.group.index()];
    let what = format!("the cache {}", cache.name);
    let bytes = page_bytes.checked_mul(pages);
    let bytes = bytes.ok_or_else(|| BackendError::OutOfMemory { what: what.clone(), bytes: usize::MAX })?;
    let args = CacheArgs {
        data: c.allocate(&what, bytes)?,
        kv_heads: small(cache.kv_heads)?,
        head_dim: small(cache.head_dim)?,
        keys,
        values,
    };
    let found = DeviceCache { args, group: cache.group };
    c.caches.insert(id.index(), found);
    Ok(found)
}

/// `struct KvStore` of the kernels.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct StoreArgs {
    cache: CacheArgs,
    k: Rows,
    v: Rows,
    group: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; slots of an accepted step lie in the cache.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for StoreArgs {}

impl StoreArgs {
    pub(super) fn cache(&self) -> &CacheArgs {
        &self.cache
    }
}

struct Store {
    function: Function,
    args: StoreArgs,
}

impl Call for Store {
    fn launch(&self, cx: &Cx<'_>) -> Result<(), CudaError> {
        let cache = &self.args.cache;
        let sides = if cache.stores_keys() { 2 } else { 1 };
        let blocks = [cx.count(RowKind::Step), cache.kv_heads as usize, sides];
        launch_ahead(cx, self.function, Grid::new(blocks, THREADS), &self.args)
    }
}

pub(super) fn store_args(c: &mut Compiler<'_>, o: &KvStore) -> Result<StoreArgs, BackendError> {
    let cache = cache(c, o.cache)?;
    let v = c.operand(o.v)?;
    let k = o.k.map_or(Ok(v), |k| c.operand(k))?;
    Ok(StoreArgs { cache: cache.args, k: k.rows, v: v.rows, group: small(cache.group.index())?, padding: 0 })
}

pub(crate) fn kv_store(c: &mut Compiler<'_>, o: &KvStore) -> Result<Box<dyn Call>, BackendError> {
    let function = c.function(&variant(), "kv_store")?;
    let args = store_args(c, o)?;
    Ok(Box::new(Store { function, args }))
}

#[derive(Clone, Copy)]
#[repr(C)]
struct MoveArgs {
    cache: CacheArgs,
    count: u32,
    padding: u32,
}

// SAFETY: the fields are those of the kernel's structure; the program has checked the slots.
#[expect(unsafe_code, reason = "promises the layout that a kernel reads")]
unsafe impl Arguments for MoveArgs {}

/// Copies slots in the caches of a group.
pub(crate) struct Mover {
    function: Option<Function>,
    caches: Vec<DeviceCache>,
}

/// Prepares the moves of slots in all caches that something is stored in.
pub(crate) fn mover(c: &mut Compiler<'_>, recording: &Recording) -> Result<Mover, BackendError> {
    let ids = recording.ops.iter().filter_map(|op| match &op.op {
        Op::KvStore(o) => Some(o.cache),
        _ => None,
    });
    let mut ids: Vec<CacheId> = ids.collect();
    ids.sort_by_key(|id| id.index());
    ids.dedup();
    let caches = ids.into_iter().map(|id| cache(c, id)).collect::<Result<Vec<_>, _>>()?;
    let function = if caches.is_empty() { None } else { Some(c.function(&variant(), "kv_move")?) };
    Ok(Mover { function, caches })
}

impl Mover {
    /// Queues `count` moves, whose slots are in the step's numbers.
    pub(crate) fn run(&self, cx: &Cx<'_>, group: GroupId, count: usize) -> Result<(), CudaError> {
        let Some(function) = self.function else { return Ok(()) };
        let count = u32::try_from(count).expect("moves are fewer than slots");
        for cache in self.caches.iter().filter(|c| c.group == group) {
            let args = MoveArgs { cache: cache.args, count, padding: 0 };
            let blocks = [cache.args.kv_heads as usize, 1, 1];
            launch_ahead(cx, function, Grid::new(blocks, THREADS), &args)?;
        }
        Ok(())
    }
}
