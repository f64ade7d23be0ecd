//! `hf2q doctor`.

use anyhow::Result;
use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_cuda::nvrtc::Nvrtc;
use hf2q_cuda::{CudaBackend, DeviceInfo, Devices, embedded_kernels};
use hf2q_plan::{Backend, Roofline};
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::{config, device, memory, terminal};

/// Memory that the speed of reading is measured with: more than most caches hold.
const STREAM: u64 = 512 << 20;

pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    // What cannot be had is said; only a processor that cannot compute is a failure.
    let processor = Processor::look()?;
    let devices = CudaBackend::devices();
    let gpus: Vec<Gpu> = devices.found.iter().map(Gpu::look).collect();
    let compiler = Nvrtc::find(None, &config::nvrtc_folders());
    if args.json {
        return print_json(&processor, (&devices, &gpus), &compiler);
    }
    let mut rows = processor.rows();
    rows.extend(driver(&devices));
    rows.extend(gpus.iter().flat_map(Gpu::rows));
    rows.extend(kernels(&devices, &compiler));
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, text)| vec![name, text]).collect();
    terminal::print_table(&rows, 2)
}

type Row = (String, String);

fn row(name: &str, text: impl Into<String>) -> Row {
    (name.to_owned(), text.into())
}

struct Processor {
    sets: Vec<&'static str>,
    threads: usize,
    free: Option<u64>,
    roofline: Roofline,
}

impl Processor {
    fn look() -> Result<Self> {
        let threads = config::default_threads();
        let backend = CpuBackend::new(CpuOptions { threads, isa: None })?;
        let free = memory::free();
        let bytes = free.map_or(STREAM, |free| STREAM.min(free / 4));
        let roofline = backend.roofline(usize::try_from(bytes)?)?;
        Ok(Self { sets: Isa::available().iter().map(|isa| isa.name()).collect(), threads, free, roofline })
    }

    fn rows(&self) -> Vec<Row> {
        let free = self.free.map_or_else(|| "unknown".to_owned(), |n| format!("{} free", terminal::bytes(n)));
        vec![
            row("processor", format!("{} threads; {}", self.threads, self.sets.join(", "))),
            row("memory", format!("{free}, read at {:.1} GB/s", self.roofline.bytes / 1e9)),
        ]
    }
}

/// A GPU, and what keeps it from computing.
struct Gpu {
    info: DeviceInfo,
    free: Option<u64>,
    problem: Option<String>,
}

impl Gpu {
    fn look(info: &DeviceInfo) -> Self {
        let opened = CudaBackend::new(device::cuda_options(info.ordinal));
        let free = opened.as_ref().ok().and_then(|backend| backend.free_memory().ok().flatten());
        let problem = opened.and_then(|backend| backend.check_kernels()).err().map(|e| e.to_string());
        Self { info: info.clone(), free, problem }
    }

    fn rows(&self) -> Vec<Row> {
        let DeviceInfo { ordinal, name, multiprocessors, memory, .. } = &self.info;
        let free = self.free.map(|n| format!(", {} free", terminal::bytes(n))).unwrap_or_default();
        let memory = terminal::bytes(*memory as u64);
        let name = terminal::safe(name);
        let text = format!("{name}, {}, {multiprocessors} multiprocessors, {memory}{free}", self.info.arch());
        let problem = self.problem.iter().map(|why| row("", format!("cannot be used: {why}")));
        std::iter::once((format!("cuda:{ordinal}"), text)).chain(problem).collect()
    }
}

fn driver(devices: &Devices) -> Vec<Row> {
    let version = devices.driver.map(|(major, minor)| format!("for CUDA {major}.{minor} and older"));
    let why = devices.why_none.clone();
    vec![row("NVIDIA driver", [version, why].into_iter().flatten().collect::<Vec<_>>().join("; "))]
}

fn kernels(devices: &Devices, compiler: &Result<Nvrtc, String>) -> Vec<Row> {
    let embedded = embedded_kernels().into_iter().map(|(arch, count)| format!("{count} for {arch}"));
    let embedded = embedded.collect::<Vec<_>>().join(", ");
    let embedded = if embedded.is_empty() { "none in this build".to_owned() } else { embedded };
    let mut rows = vec![row("GPU kernels", embedded)];
    match compiler {
        Ok(found) => {
            let (major, minor) = found.version();
            rows.push(row("NVRTC", format!("{major}.{minor}, {}", found.file().display())));
        }
        // Without a GPU nobody misses it.
        Err(_) if devices.found.is_empty() => rows.push(row("NVRTC", "not found")),
        Err(why) => rows.push(row(
            "NVRTC",
            format!("not found ({why}); `pip install nvidia-cuda-nvrtc` or a CUDA toolkit has it"),
        )),
    }
    if let Some(folder) = config::kernel_dir() {
        let kept = std::fs::read_dir(&folder).map_or(0, Iterator::count);
        rows.push(row("kept kernels", format!("{kept} in {}", folder.display())));
    }
    rows
}

fn print_json(
    processor: &Processor,
    (devices, gpus): (&Devices, &[Gpu]),
    compiler: &Result<Nvrtc, String>,
) -> Result<()> {
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let gpu = |g: &Gpu| {
        json!({
            "device": format!("cuda:{}", g.info.ordinal),
            "name": g.info.name,
            "arch": g.info.arch(),
            "multiprocessors": g.info.multiprocessors,
            "memory": g.info.memory,
            "free": g.free,
            "problem": g.problem,
        })
    };
    let nvrtc: Value = match compiler {
        Ok(found) => json!({
            "version": format!("{}.{}", found.version().0, found.version().1),
            "file": found.file().display().to_string(),
        }),
        Err(_) => Value::Null,
    };
    let embedded = embedded_kernels().into_iter().map(|(arch, count)| (arch, json!(count)));
    terminal::print_json(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "processor": {
            "threads": processor.threads,
            "instruction_sets": processor.sets,
            "free": processor.free,
            "bytes_per_second": processor.roofline.bytes,
        },
        "driver": devices.driver.map(version),
        "why_no_gpu": devices.why_none,
        "gpus": gpus.iter().map(gpu).collect::<Vec<_>>(),
        "embedded_kernels": embedded.collect::<serde_json::Map<_, _>>(),
        "nvrtc": nvrtc,
        "kernel_folder": config::kernel_dir().map(|folder| folder.display().to_string()),
    }))
}
