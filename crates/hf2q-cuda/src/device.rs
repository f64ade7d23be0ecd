//! Devices and what they are asked: memory, copies, streams.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result};

use crate::error::CudaError;

/// What is known of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number by which it is asked for.
    pub ordinal: usize,
    /// The vendor's name.
    pub name: String,
    /// Compute capability, for example `(9, 0)`.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

impl DeviceInfo {
    /// The architecture that kernels are compiled for, for example `sm_90a`.
    pub fn arch(&self) -> String {
        let (major, minor) = self.capability;
        // Code for the letter runs on this very architecture alone and may use all that it has.
        let letter = if major == 9 { "a" } else { "" };
        format!("sm_{major}{minor}{letter}")
    }

    /// Most bytes of shared memory of a block of threads.
    pub(crate) fn shared(&self) -> usize {
        let kibibytes = match self.capability {
            (8, 0 | 7) => 163,
            (9..=10, _) => 227,
            _ => 99,
        };
        kibibytes << 10
    }

    /// Architectures whose code the device runs, its own first: code for an earlier minor version runs on a later one.
    pub(crate) fn arches(&self) -> Vec<String> {
        let (major, minor) = self.capability;
        let earlier = (0..minor).rev().filter(|_| major != 9).map(|minor| format!("sm_{major}{minor}"));
        std::iter::once(self.arch()).chain(earlier).collect()
    }
}

/// What was looked for and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// In the order of their numbers.
    pub found: Vec<DeviceInfo>,
    /// Newest CUDA version of the driver, for example `(13, 0)`.
    pub driver: Option<(u32, u32)>,
    /// Why there is none.
    pub why_none: Option<String>,
}

/// A failed call of the driver.
pub(crate) fn driver_error(what: &str, error: DriverError) -> CudaError {
    let name = error.error_name().map(|n| n.to_string_lossy().into_owned());
    let why = name.unwrap_or_else(|_| format!("{:?}", error.0));
    CudaError::Driver { what: what.to_owned(), why }
}

/// Looks for the driver and its devices.
#[expect(unsafe_code, reason = "the driver is a library written in C")]
pub(crate) fn find() -> Devices {
    // SAFETY: loads the driver's library and nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Devices { found: Vec::new(), driver: None, why_none: Some(CudaError::NoDriver.to_string()) };
    }
    match list() {
        Ok((found, driver)) => {
            let why_none = found.is_empty().then(|| "the NVIDIA driver has no device".to_owned());
            Devices { found, driver: Some(driver), why_none }
        }
        Err(error) => Devices { found: Vec::new(), driver: None, why_none: Some(error.to_string()) },
    }
}

#[expect(unsafe_code, reason = "the driver is a library written in C")]
fn list() -> Result<(Vec<DeviceInfo>, (u32, u32)), CudaError> {
    let fail = |e| driver_error("looking for devices", e);
    result::init().map_err(fail)?;
    let mut version = 0;
    // SAFETY: points to an integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(fail)?;
    let version = version.unsigned_abs();
    let count = result::device::get_count().map_err(fail)?;
    let found = (0..count).map(|i| info(i).map_err(fail)).collect::<Result<_, _>>()?;
    Ok((found, (version / 1000, version % 1000 / 10)))
}

#[expect(unsafe_code, reason = "the driver is a library written in C")]
fn info(ordinal: i32) -> Result<DeviceInfo, DriverError> {
    let device = result::device::get(ordinal)?;
    // SAFETY: the driver has just given this device.
    let attribute = |a| unsafe { result::device::get_attribute(device, a) }.map(i32::unsigned_abs);
    Ok(DeviceInfo {
        ordinal: ordinal.unsigned_abs() as usize,
        name: result::device::get_name(device)?,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device) }?,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

/// Oldest CUDA version of the driver, which has all functions that are called, and oldest compute capability, which has all
/// instructions that kernels are written with.
const LEAST_DRIVER: (u32, u32) = (12, 0);
const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// Refuses what is too old. The driver comes first: a function that it lacks would end the process.
fn check_age(driver: Option<(u32, u32)>, info: &DeviceInfo) -> Result<(), CudaError> {
    let too_old = |what: String, found, least| Err(CudaError::TooOld { what, found, least });
    match driver {
        Some(found) if found < LEAST_DRIVER => {
            too_old("the CUDA version of the NVIDIA driver".to_owned(), found, LEAST_DRIVER)
        }
        _ if info.capability < LEAST_CAPABILITY => too_old(
            format!("the compute capability of device {} ({})", info.ordinal, info.name),
            info.capability,
            LEAST_CAPABILITY,
        ),
        _ => Ok(()),
    }
}

/// An open device with one stream: what is queued runs in order.
pub(crate) struct Device {
    pub(crate) info: DeviceInfo,
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
}

impl Device {
    /// Opens a device.
    #[expect(unsafe_code, reason = "order is kept by one stream")]
    pub(crate) fn open(ordinal: usize) -> Result<Self, CudaError> {
        let devices = find();
        if let Some(why) = devices.why_none {
            let what = "looking for devices".to_owned();
            return Err(if devices.driver.is_none() && why == CudaError::NoDriver.to_string() {
                CudaError::NoDriver
            } else {
                CudaError::Driver { what, why }
            });
        }
        let count = devices.found.len();
        let info = devices.found.into_iter().nth(ordinal);
        let info = info.ok_or(CudaError::NoDevice { found: ordinal, count })?;
        check_age(devices.driver, &info)?;
        let fail = |e| driver_error("opening the device", e);
        let context = CudaContext::new(ordinal).map_err(fail)?;
        // SAFETY: all memory of this crate is used on one stream, or after waiting for it.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(fail)?;
        Ok(Self { info, context, stream })
    }

    /// Another stream of the same device.
    pub(crate) fn fork(&self) -> Result<Self, CudaError> {
        let stream = self.context.new_stream().map_err(|e| driver_error("making a stream", e))?;
        Ok(Self { info: self.info.clone(), context: Arc::clone(&self.context), stream })
    }

    /// Bytes of memory that are free.
    pub(crate) fn free(&self) -> Result<usize, CudaError> {
        let (free, _) =
            self.context.mem_get_info().map_err(|e| driver_error("asking for the free memory", e))?;
        Ok(free)
    }

    /// Makes the device current for this thread.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        self.context.bind_to_thread().map_err(|e| driver_error("choosing the device", e))
    }

    /// Waits for all that was queued.
    pub(crate) fn wait(&self, what: &str) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(|e| driver_error(what, e))
    }
}

/// When all that was queued before it was done.
pub(crate) struct Stamp(CudaEvent);

impl Stamp {
    /// Queues it.
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        let event = device.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT));
        Ok(Self(event.map_err(|e| driver_error("noting the time", e))?))
    }

    /// Waits for both, and gives the time between them.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Duration, CudaError> {
        let millis = earlier.0.elapsed_ms(&self.0).map_err(|e| driver_error("measuring a time", e))?;
        Ok(Duration::try_from_secs_f64(f64::from(millis) / 1e3).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(capability: (u32, u32)) -> DeviceInfo {
        DeviceInfo { ordinal: 1, name: "A".to_owned(), capability, memory: 1 << 30, multiprocessors: 8 }
    }

    #[test]
    fn what_is_too_old_is_named() {
        check_age(Some((12, 0)), &info((8, 0))).unwrap();
        check_age(Some((13, 1)), &info((12, 0))).unwrap();
        let driver = check_age(Some((11, 8)), &info((9, 0))).unwrap_err().to_string();
        assert_eq!(
            driver,
            "the CUDA version of the NVIDIA driver is 11.8, needed is at least 12.0; run on the CPU"
        );
        let device = check_age(Some((13, 0)), &info((7, 5))).unwrap_err().to_string();
        assert!(device.contains("device 1 (A) is 7.5, needed is at least 8.0"), "{device}");
    }

    #[test]
    fn architectures_are_those_of_the_compiler() {
        let arch = [(8, 0), (8, 9), (9, 0), (10, 3), (12, 0)].map(|capability| info(capability).arch());
        assert_eq!(arch, ["sm_80", "sm_89", "sm_90a", "sm_103", "sm_120"]);
        assert_eq!(info((8, 2)).arches(), ["sm_82", "sm_81", "sm_80"]);
        assert_eq!(info((9, 0)).arches(), ["sm_90a"]);
        assert_eq!(info((12, 1)).arches(), ["sm_121", "sm_120"]);
    }
}
