//! The report page: whole, by itself, and safe whatever names files bring.

use hf2q_arch::Config;
use hf2q_convert::report::{Report, html};
use hf2q_convert::{Folder, Record, Source, Why};
use hf2q_gguf::TensorType;

use crate::support::{convert, root};

fn config() -> Config {
    let folder = Folder::new(&root().join("fixtures/tiny/llama"));
    Config::from_hf(&folder.required_json("config.json").unwrap()).unwrap()
}

fn record(name: &str, ty: TensorType, why: Why, relative_error: Option<f64>) -> Record {
    let (name, source) = (name.to_owned(), "bf16".to_owned());
    let bytes = 4 * ty.row_bytes(256).unwrap() as u64;
    Record { name, shape: vec![256, 4], source, ty, why, bytes, relative_error }
}

fn page(records: &[Record], warnings: &[String]) -> String {
    let config = config();
    html(&Report {
        name: "a model",
        config: &config,
        source: "folder",
        source_bytes: 1 << 20,
        outputs: &["out.gguf".to_owned()],
        recipe: "q4_k_m",
        importance: None,
        seconds: 1.5,
        records,
        warnings,
    })
}

/// Every element is closed in the order in which they were opened, and attributes are quoted.
#[track_caller]
fn assert_well_formed(page: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open: Vec<&str> = Vec::new();
    // Style rules hold a `>` here and there.
    let (before, style) = page.split_once("<style>").unwrap();
    let text = [before, "<style>", &style[style.find("</style>").unwrap()..]].concat();
    let mut rest = text.as_str();
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("every tag ends");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn a_page_says_what_became_of_the_tensors() {
    let records = [
        record("token_embd.weight", TensorType::Q6K, Why::Mixture, Some(0.018)),
        record("blk.0.attn_q.weight", TensorType::Q4K, Why::Recipe, Some(0.07)),
        record("blk.1.attn_q.weight", TensorType::Q8_0, Why::Override, Some(0.005)),
        record(
            "blk.1.ffn_down.weight",
            TensorType::Q5_0,
            Why::Fallback { wanted: TensorType::Q4K },
            Some(0.04),
        ),
    ];
    let page = page(&records, &["mind the gap".to_owned()]);
    assert_well_formed(&page);
    for part in [
        "<h1><bdi>a model</bdi></h1>",
        "recipe q4_k_m",
        "1.00\u{a0}MiB",
        "mind the gap",
        "Types by layer",
        "class=\"fill t-q4_k\"",
        "class=\"fill t-q8_0 marked\"",
        "Relative error by layer",
        "asked for",
        "q4_k was wanted; rows of 256",
        "largest 0.0700 in <bdi>blk.0.attn_q.weight</bdi>",
        "not used",
        ".t-q6_k { --hue",
    ] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
}

#[test]
fn nothing_leads_elsewhere_and_nothing_runs() {
    let records = [record("blk.0.attn_q.weight", TensorType::Q4K, Why::Recipe, Some(0.07))];
    let page = page(&records, &[]);
    for part in ["<script", "http:", "https:", "url(", "@import", "<link", "<img", "<iframe", "href", "src="]
    {
        assert!(!page.to_lowercase().contains(part), "{part:?} is in the page");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_from_strangers_stay_text() {
    let evil = "<script>x</script>\"' onload='x'&\u{202e}\u{1b}[2J";
    let mut records = vec![
        record(evil, TensorType::Q4K, Why::Override, Some(f64::NAN)),
        record(&format!("blk.3.{evil}.weight"), TensorType::Q2K, Why::Override, Some(f64::INFINITY)),
        record(&format!("blk.4000000000.{evil}.weight"), TensorType::F32, Why::Kept, Some(0.1)),
        record(&format!("blk.99999999999.{evil}"), TensorType::F32, Why::Kept, None),
    ];
    records[0].source = evil.to_owned();
    records[1].shape = vec![u64::MAX, u64::MAX];
    let config = config();
    let page = html(&Report {
        name: evil,
        config: &config,
        source: evil,
        source_bytes: u64::MAX,
        outputs: &[evil.to_owned(), evil.to_owned()],
        recipe: evil,
        importance: Some(evil),
        seconds: f64::NAN,
        records: &records,
        warnings: &[evil.to_owned()],
    });
    assert_well_formed(&page);
    assert!(!page.contains("<script") && !page.contains("' onload") && !page.contains('\u{202e}'));
    assert!(!page.contains('\u{1b}') && page.contains("&lt;script&gt;"));
}

#[test]
fn any_set_of_records_gives_a_page() {
    assert_well_formed(&page(&[], &[]));
    let unmeasured = [
        record("blk.0.attn_q.weight", TensorType::Q4K, Why::Recipe, None),
        record("blk.7.attn_q.weight", TensorType::Q4K, Why::Recipe, None),
    ];
    let text = page(&unmeasured, &[]);
    assert_well_formed(&text);
    assert!(text.contains("not measured") && !text.contains("Relative error by layer"));
    for ty in TensorType::all() {
        let one = record("blk.0.a.weight", ty, Why::Recipe, Some(0.5));
        assert_well_formed(&page(&[one], &[]));
    }
    // More layers than have room for names.
    let many: Vec<Record> = (0..90)
        .map(|i| {
            record(&format!("blk.{i}.attn_q.weight"), TensorType::Q4K, Why::Recipe, Some(0.01 * f64::from(i)))
        })
        .collect();
    assert!(page(&many, &[]).contains("grid narrow"));
}

#[test]
fn a_conversion_makes_one() {
    let folder = root().join("models/demo/tiny-moe");
    let source = Source::open(&folder).unwrap();
    let (_dir, _, summary) = convert(&folder, "q4_0");
    let text = html(&Report {
        name: "tiny-moe",
        config: source.config(),
        source: "tiny-moe",
        source_bytes: source.bytes(),
        outputs: &["out.gguf".to_owned()],
        recipe: "q4_0",
        importance: None,
        seconds: 0.5,
        records: &summary.records,
        warnings: &summary.warnings,
    });
    assert_well_formed(&text);
    assert!(text.contains("gemma4") && text.contains("ffn_gate_up_exps") && text.contains("experts"));
}
