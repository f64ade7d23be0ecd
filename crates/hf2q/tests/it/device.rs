//! Where models are computed. Tests hold on machines with and without a GPU.

use serde_json::Value;

use crate::support::Place;

fn doctor(place: &Place) -> Value {
    serde_json::from_str(&place.run(&["doctor", "--json"]).success()).unwrap()
}

fn has_gpu(place: &Place) -> bool {
    !doctor(place)["gpus"].as_array().unwrap().is_empty()
}

#[test]
fn doctor_says_what_is_there_and_what_is_not() {
    let place = Place::new();
    let found = doctor(&place);
    let sets = found["processor"]["instruction_sets"].as_array().unwrap();
    assert!(sets.contains(&"portable".into()) && found["processor"]["threads"].as_u64() > Some(0), "{found}");
    assert!(found["processor"]["bytes_per_second"].as_f64() > Some(1e8), "{found}");
    let gpus = found["gpus"].as_array().unwrap();
    assert_eq!(gpus.is_empty(), found["why_no_gpu"].is_string(), "{found}");
    assert!(found["kernel_folder"].as_str().unwrap().ends_with("cache/hf2q/kernels"), "{found}");
    let text = place.run(&["doctor"]).success();
    for part in ["processor", "memory", "GB/s", "NVIDIA driver", "GPU kernels", "NVRTC", "kept kernels"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn a_device_that_is_not_there_is_named_with_what_to_do() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let run = |device: &str| place.run(&["run", &model, "A", "--raw", "-n", "1", "--device", device]);
    run("gpu").failure(&["expected auto, cpu, cuda or cuda:N"]);
    run("cuda:4096").failure(&["--device cuda:4096"]);
    if !has_gpu(&place) {
        run("cuda").failure(&["--device cuda:0", "run on the CPU"]);
    }
    let both = ["run", &model, "A", "--raw", "-n", "1", "--device", "cuda", "--threads", "1"];
    place.run(&both).failure(&["--threads is of the processor", "--device cpu"]);
    let both = ["bench", &model, "-p", "1", "-n", "0", "--device", "cuda:0", "--isa", "portable"];
    place.run(&both).failure(&["--isa is of the processor"]);
}

#[test]
fn what_was_chosen_and_why_is_one_line_unless_it_was_asked_for() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let run = |more: &[&str]| {
        let ran =
            place.run(&[&["run", &model, "A", "--raw", "-n", "1", "--temperature", "0"], more].concat());
        assert!(ran.ok, "{ran:?}");
        ran.stderr
    };
    let auto = run(&["--threads", "2"]);
    let lines: Vec<&str> = auto.lines().filter(|line| line.starts_with("on ")).collect();
    assert!(
        matches!(lines[..], [line] if line.starts_with("on cpu: ") && line.contains("--threads")),
        "{auto}"
    );
    assert!(!run(&["--device", "cpu"]).contains("on cpu"));
    assert!(!run(&["-q"]).contains("on "));
    if !has_gpu(&place) {
        assert!(run(&[]).lines().any(|line| line.starts_with("on cpu: ") && line.ends_with(')')));
    }
}

#[test]
fn two_devices_are_compared_as_two_settings() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    std::fs::write(place.path("text.txt"), "A fox and a hare went to the river. ".repeat(20)).unwrap();
    let args = ["compare", &model, "--text", "text.txt", "-c", "64", "--chunks", "1", "--a-device", "cpu"];
    place.run(&args).failure(&["nothing to compare", "--b-device"]);
    let json = place.run(&[&args[..], &["--b-device", "cpu", "--json"]].concat()).success();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["candidates"][0]["kl"]["max"], 0.0);
    assert!(json["candidates"][0]["name"].as_str().unwrap().contains("cpu"), "{json}");
}
