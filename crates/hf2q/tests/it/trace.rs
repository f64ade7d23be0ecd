//! `hf2q trace`: tensors of a running model, whole or not at all.

use serde_json::Value;

use crate::support::Place;

const PROMPT: &str = "Once upon a time there was a little fox who";

/// The header of a file of safetensors.
fn header(place: &Place, file: &str) -> Value {
    let bytes = std::fs::read(place.path(file)).unwrap();
    let (len, rest) = bytes.split_first_chunk::<8>().unwrap();
    let len = usize::try_from(u64::from_le_bytes(*len)).unwrap();
    let header: Value = serde_json::from_slice(&rest[..len]).unwrap();
    let end = |t: &Value| t["data_offsets"][1].as_u64().unwrap_or(0);
    let last = header.as_object().unwrap().values().map(end).max().unwrap();
    assert_eq!(last as usize, rest.len() - len);
    header
}

#[test]
fn the_file_has_a_tensor_for_each_name_and_step() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let tokens: Vec<u32> =
        serde_json::from_str(&place.run(&["tokenize", &model, PROMPT, "--bos", "--json"]).success()).unwrap();
    let args =
        ["trace", &model, "--prompt", PROMPT, "--chunk", "5", "--steps", "0,2..3", "-o", "t.safetensors"];
    let said = place.run(&[&args[..], &["-s", "L0?.attn.kv_store", "output"]].concat()).success();
    assert!(said.starts_with("Wrote t.safetensors: "), "{said}");
    let header = header(&place, "t.safetensors");
    let chunk = |step: usize| tokens.chunks(5).nth(step).map_or(1, <[u32]>::len);
    for step in [0, 2, 3] {
        assert_eq!(header[format!("L00.attn.kv_store.k@{step}")]["shape"][0], chunk(step), "{header}");
        assert_eq!(header[format!("output@{step}")]["shape"][0], 1);
    }
    assert!(header.get("output@1").is_none());
    let metadata = &header["__metadata__"];
    let positions: Value = serde_json::from_str(metadata["positions"].as_str().unwrap()).unwrap();
    assert_eq!((&positions["0"], &positions["2"][0]), (&serde_json::json!([0, 1, 2, 3, 4]), &10.into()));
    let of_step: Value = serde_json::from_str(metadata["tokens"].as_str().unwrap()).unwrap();
    assert_eq!(of_step["0"], serde_json::json!(tokens[..5]));
    assert_eq!((&metadata["model"], &metadata["fused"]), (&model.as_str().into(), &"true".into()));
}

#[test]
fn rows_whose_logits_nobody_wants_are_traced_in_every_layer() {
    let place = Place::new();
    let model = place.converted("tiny-moe", "f32");
    let args = ["trace", &model, "-p", PROMPT, "-o", "t.safetensors", "--no-fusion", "-s"];
    place.run(&[&args[..], &["L0?.ffn.down_proj", "L00.moe.route*"]].concat()).success();
    let header = header(&place, "t.safetensors");
    let mut rows: Vec<u64> = Vec::new();
    for (name, tensor) in header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__") {
        rows.push(tensor["shape"][0].as_u64().unwrap());
        let dtype = if name.ends_with(".experts@0") { "I32" } else { "F32" };
        assert_eq!(tensor["dtype"], dtype, "{name}");
    }
    assert!(rows.len() > 4 && rows.iter().all(|&n| n == rows[0] && n > 5), "{rows:?}");
}

#[test]
fn statistics_of_keys_are_those_of_the_codec_too() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    let before = place.files();
    let args = ["trace", &model, "-p", PROMPT, "--stats", "-s", "L00.attn.kv_store", "output"];
    let text = place.run(&args).success();
    for part in
        ["L00.attn.kv_store.k", "kurtosis", "rotated, blocks of", "beyond the outermost level: tq2 ", "tq8 "]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(place.files(), before, "nothing is written");
    let json: Value = serde_json::from_str(&place.run(&[&args[..], &["--json"]].concat()).success()).unwrap();
    let tensors = json["tensors"].as_array().unwrap();
    assert_eq!(
        tensors.iter().map(|t| t["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["L00.attn.kv_store.k", "L00.attn.kv_store.v", "output"]
    );
    for t in tensors {
        let bins: u64 = t["histogram"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(bins, t["values"].as_u64().unwrap());
    }
    // Of normal values about 13 % are beyond the outermost level of 2 bits, and fewer the more bits there are.
    let clipped = tensors[0]["rotated"]["clipped"].as_object().unwrap();
    let shares: Vec<f64> = clipped.values().map(|v| v.as_f64().unwrap()).collect();
    assert!((0.05..0.2).contains(&shares[0]) && shares.is_sorted_by(|a, b| a >= b), "{clipped:?}");
    assert!(tensors[2]["rotated"].is_null());
}

#[test]
fn mistakes_leave_every_file_as_it_was() {
    let place = Place::new();
    let model = place.converted("tiny-dense", "q8_0");
    std::fs::write(place.path("mine"), "mine").unwrap();
    std::fs::write(place.path("text.txt"), "A text.").unwrap();
    let before = place.files();
    let output = ["-s", "output", "-o", "new"];
    for (args, parts) in [
        (
            &["-p", PROMPT, "-s", "*.q_prj", "-o", "new"][..],
            &["--select", "\"*.q_prj\"", "L00.attn.q_proj"][..],
        ),
        (&["-p", PROMPT, "-s", "output", "-o", "mine"], &["mine exists already", "--force"]),
        (&["-p", PROMPT, "-s", "output", "-o", &model, "--force"], &["is an input"]),
        (&["-f", "text.txt", "-s", "output", "-o", "text.txt", "--force"], &["text.txt", "is an input"]),
        (&["-f", "absent.txt", "-s", "output", "-o", "new"], &["absent.txt"]),
        (&["-p", PROMPT, "-s", "output"], &["--output"]),
        (&["-p", PROMPT, "-o", "new"], &["--select"]),
        (&[&["-p", PROMPT, "--steps", "4..2"], &output[..]].concat(), &["--steps", "4..2"]),
        (&[&["-p", PROMPT, "--steps", "7.."], &output[..]].concat(), &["no such steps"]),
        (&[&["-p", PROMPT, "--steps", "0..999999"], &output[..]].concat(), &["the model's context is"]),
        (&["-p", PROMPT, "-s", "output", "-o", "no/such/folder"], &["there is no folder no/such"]),
        (&output, &["--prompt"]),
    ] {
        place.run(&[&["trace", &model], args].concat()).failure(parts);
        assert_eq!(place.files(), before, "{args:?}");
    }
    assert_eq!(std::fs::read_to_string(place.path("mine")).unwrap(), "mine");
    place.run(&["trace", &model, "-f", "text.txt", "-s", "output", "-o", "mine", "--force"]).success();
    assert!(header(&place, "mine").get("output@0").is_some());
}
