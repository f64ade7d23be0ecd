//! Behaviour that needs no device.

use std::path::Path;

use hf2q_cuda::nvrtc::Nvrtc;
use hf2q_cuda::{CudaBackend, CudaError, CudaOptions};

#[test]
fn looking_for_devices_says_why_there_is_none() {
    let devices = CudaBackend::devices();
    assert_eq!(devices.found.is_empty(), devices.why_none.is_some(), "{devices:?}");
    assert!(devices.driver.is_some() || devices.found.is_empty(), "{devices:?}");
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    let devices = CudaBackend::devices();
    let options = CudaOptions { device: usize::MAX, ..CudaOptions::default() };
    let error = CudaBackend::new(options).err().expect("there is no such device");
    match error {
        CudaError::NoDevice { found, count } => assert_eq!((found, count), (usize::MAX, devices.found.len())),
        // Without a driver, or with one that has no device.
        error => assert_eq!(Some(true), devices.why_none.map(|why| error.to_string().contains(&why))),
    }
}

#[test]
fn a_compiler_that_is_not_there_is_an_error() {
    let why = Nvrtc::load(Path::new("no/such/libnvrtc.so")).err().expect("there is no such file");
    assert!(why.contains("no/such/libnvrtc.so"), "{why}");
}
