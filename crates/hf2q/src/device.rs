//! Where a model is computed: on the processor or on a GPU.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use hf2q_cpu::{CpuBackend, CpuOptions, Isa};
use hf2q_cuda::{CudaBackend, CudaOptions, Devices, Loading, OnLoading};
use hf2q_engine::{EngineOptions, Needs};
use hf2q_model::Model;
use hf2q_plan::{Backend, Plan};
use indicatif::ProgressBar;

use crate::args::IsaArg;
use crate::{config, terminal};

pub(crate) const DEVICE_HELP: &str = "Where to compute: auto (the first GPU that has room for the model and its caches, else the processor), cpu, cuda or cuda:N";

/// What `--device` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    #[default]
    Auto,
    Cpu,
    /// By its number.
    Cuda(usize),
}

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "cuda" => "0",
            _ => text.strip_prefix("cuda:").unwrap_or_default(),
        };
        let number = number.parse().map_err(|_| "expected auto, cpu, cuda or cuda:N".to_owned())?;
        Ok(Self::Cuda(number))
    }
}

impl fmt::Display for DeviceArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Flags that say where and how to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) device: DeviceArg,
    pub(crate) threads: Option<usize>,
    pub(crate) isa: Option<IsaArg>,
}

/// A plan that is to be opened, and how large.
pub(crate) type Wanted<'a> = (&'a Plan, EngineOptions);

/// A backend, and why it is this one if it was chosen.
pub(crate) struct Chosen {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) why: Option<String>,
}

impl Chosen {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        match &self.why {
            Some(why) => format!("on {} ({why})", self.backend.describe()),
            None => format!("on {}", self.backend.describe()),
        }
    }
}

impl Wish {
    /// The backend that is asked for; where that is left open, the first GPU on which all of `plans` have room, else the
    /// processor.
    pub(crate) fn backend(self, model: &Model, plans: &[Wanted<'_>]) -> Result<Chosen> {
        match (self.device, self.of_the_processor()) {
            (DeviceArg::Cpu, _) => Ok(Chosen { backend: self.cpu()?, why: None }),
            (DeviceArg::Cuda(number), None) => Ok(Chosen { backend: Arc::new(cuda(number)?), why: None }),
            (DeviceArg::Cuda(number), Some(flag)) => {
                bail!(
                    "{flag} is of the processor; leave it out, or take --device cpu in place of cuda:{number}"
                )
            }
            (DeviceArg::Auto, Some(flag)) => {
                Ok(Chosen { backend: self.cpu()?, why: Some(format!("{flag} is of the processor")) })
            }
            (DeviceArg::Auto, None) => match first_with_room(model, plans) {
                Ok(chosen) => Ok(chosen),
                Err(why) => Ok(Chosen { backend: self.cpu()?, why: Some(why) }),
            },
        }
    }

    /// A flag that means nothing on a GPU.
    fn of_the_processor(self) -> Option<&'static str> {
        self.isa.map(|_| "--isa").or(self.threads.map(|_| "--threads"))
    }

    fn cpu(self) -> Result<Arc<dyn Backend>> {
        let isa = self.isa.map(instruction_set).transpose()?;
        let threads = self.threads.unwrap_or_else(config::default_threads);
        Ok(Arc::new(CpuBackend::new(CpuOptions { threads, isa })?))
    }
}

/// A GPU that is ready to compute.
fn cuda(number: usize) -> Result<CudaBackend> {
    let backend =
        CudaBackend::new(cuda_options(number)).with_context(|| format!("--device cuda:{number}"))?;
    backend.check_kernels()?;
    Ok(backend)
}

/// How GPUs are opened.
pub(crate) fn cuda_options(device: usize) -> CudaOptions {
    let kernel_cache = config::kernel_dir();
    let nvrtc_folders = config::nvrtc_folders();
    CudaOptions { device, kernel_cache, nvrtc_folders, loading: Some(loading()), ..CudaOptions::default() }
}

/// Why there is no GPU, in few words.
pub(crate) fn why_none(devices: &Devices) -> Option<String> {
    let why = devices.why_none.as_ref()?;
    let short = || why.split(';').next().unwrap_or(why).to_owned();
    Some(if devices.driver.is_none() && why.contains("libcuda") {
        "no NVIDIA driver".to_owned()
    } else {
        short()
    })
}

/// The first GPU on which all plans have room, or why there is none.
fn first_with_room(model: &Model, plans: &[Wanted<'_>]) -> Result<Chosen, String> {
    let devices = CudaBackend::devices();
    if let Some(why) = why_none(&devices) {
        return Err(why);
    }
    let mut whys = Vec::new();
    for info in &devices.found {
        match room_on(info.ordinal, model, plans) {
            Ok(chosen) => return Ok(chosen),
            Err(error) => whys.push(format!("cuda:{}: {error:#}", info.ordinal)),
        }
    }
    Err(whys.join("; "))
}

fn room_on(number: usize, model: &Model, plans: &[Wanted<'_>]) -> Result<Chosen> {
    let backend = CudaBackend::new(cuda_options(number))?;
    // Programs share the weights.
    let (mut weights, mut others) = (0_usize, 0_usize);
    for (plan, sizes) in plans {
        let needs = Needs::new(&backend, plan, model.weights_for(&plan.recording), *sizes)?;
        weights = weights.max(needs.weights);
        others = others.saturating_add(needs.caches()).saturating_add(needs.work);
    }
    let needed = weights.saturating_add(others) as u64;
    let free = backend.free_memory()?.unwrap_or(0);
    let [needs, has] = [needed, free].map(terminal::bytes);
    if needed > free {
        bail!("{needs} are needed, {has} are free");
    }
    backend.check_kernels()?;
    Ok(Chosen { backend: Arc::new(backend), why: Some(format!("{needs} of {has} that are free")) })
}

/// Shows what takes time: a line when kernels are compiled, a bar while weights are copied.
fn loading() -> OnLoading {
    let bar: Mutex<Option<ProgressBar>> = Mutex::default();
    let told = Mutex::new(false);
    OnLoading::new(move |what| match what {
        Loading::Compiling { .. } => {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if !std::mem::replace(&mut *told, true) {
                let kept = config::kernel_dir().map(|dir| format!(", kept in {}", dir.display()));
                let kept = kept.unwrap_or_default();
                terminal::note(&terminal::dim(&format!("compiling kernels for this GPU{kept}")));
            }
        }
        Loading::NotKept { why } => terminal::note(&format!("note: {why}")),
        Loading::Weights { done, total } => {
            let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = bar.get_or_insert_with(|| terminal::byte_bar(*total));
            shown.set_position(*done);
            if done == total {
                shown.finish_and_clear();
                *bar = None;
            }
        }
    })
}

/// One of this machine's instruction sets by name.
fn instruction_set(wanted: IsaArg) -> Result<Isa> {
    let name = match wanted {
        IsaArg::Amx => "amx",
        IsaArg::Avx512 => "avx512",
        IsaArg::Avx2 => "avx2",
        IsaArg::Portable => "portable",
    };
    let available = Isa::available();
    let names: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
    let found = available.iter().copied().find(|isa| isa.name() == name);
    found.with_context(|| format!("--isa {name}: this processor has {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_names() {
        let read = |text: &str| text.parse::<DeviceArg>();
        for (text, device) in [
            ("auto", DeviceArg::Auto),
            ("cpu", DeviceArg::Cpu),
            ("cuda:0", DeviceArg::Cuda(0)),
            ("cuda:13", DeviceArg::Cuda(13)),
        ] {
            assert_eq!(read(text), Ok(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!(read("cuda"), Ok(DeviceArg::Cuda(0)));
        for wrong in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "cuda0"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_of_the_processor_are_no_use_on_a_gpu() {
        let wish = Wish { device: DeviceArg::Cuda(1), threads: Some(2), isa: None };
        assert_eq!(wish.of_the_processor(), Some("--threads"));
        assert_eq!(Wish { isa: Some(IsaArg::Portable), ..wish }.of_the_processor(), Some("--isa"));
    }
}
