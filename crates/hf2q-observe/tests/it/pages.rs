//! The page of a comparison: whole, by itself, and safe whatever names it is given.

use hf2q_observe::report::{Page, html};
use hf2q_observe::{
    Bar, CacheSize, Compared, Comparison, Greedy, LayerCosine, Likelihood, Measured, PositionKl, Spread,
    Thresholds,
};

fn measured(name: &str) -> Measured {
    let mut likelihood = Likelihood::default();
    [2.0, 3.0].into_iter().for_each(|nll| likelihood.push(nll));
    let cache =
        CacheSize { bytes_per_token: 1024.0, fixed_bytes: 64, bits_per_element: 4.5, marginal_bits: 4.25 };
    Measured { name: name.to_owned(), cache, likelihood }
}

fn compared(name: &str, layers: usize, kl: f64) -> Compared {
    let layer = |i: usize| LayerCosine {
        op: format!("L{i:02}.attn.attend"),
        group: "sliding".to_owned(),
        mean: 1.0 - kl / 9.0,
        least: 0.5,
    };
    Compared {
        measured: measured(name),
        kl: Spread { mean: kl, error: 0.0, median: kl, p99: 2.0 * kl, max: 9.0 * kl },
        same_top: 0.875,
        not_finite: 0,
        ratio: 1.25,
        ratio_error: Some(0.01),
        layers: (layers > 0).then(|| (0..layers).map(layer).collect()),
        positions: vec![
            PositionKl { from: 4, to: 6, mean: kl, max: kl },
            PositionKl { from: 6, to: 7, mean: 0.0, max: 0.0 },
        ],
        histogram: vec![Bar { from: 0.0, to: 0.1, rows: 1 }, Bar { from: 0.1, to: f64::INFINITY, rows: 2 }],
        greedy: Some(Greedy { lengths: vec![8; 4], same: vec![Some(3), None, Some(2), Some(1)] }),
    }
}

fn page(candidates: Vec<Compared>, limits: Thresholds) -> String {
    let failures: Vec<_> = candidates.iter().flat_map(|c| limits.failures(c)).collect();
    let comparison = Comparison { reference: measured("a.gguf, cache f32"), candidates, chunks: 3 };
    let facts = ["eval.txt".to_owned(), "<3 chunks>".to_owned()];
    html(&Page { facts: &facts, comparison: &comparison, failures: &failures, seconds: 1.5 })
}

/// Every element is closed in the order in which they were opened, and attributes are quoted.
#[track_caller]
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
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
        } else if !tag.ends_with('/') && !["meta", "!DOCTYPE"].contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
    assert!(!page.contains("NaN"));
}

#[test]
fn a_page_says_what_was_found() {
    let limits = Thresholds { max_kl: Some(0.1), ..Thresholds::default() };
    let page = page(vec![compared("tq4", 3, 0.05), compared("tq2", 3, 0.5)], limits);
    assert_well_formed(&page);
    for part in [
        "<h1><bdi>a.gguf, cache f32</bdi></h1>",
        "&lt;3 chunks&gt;",
        "1 limit not kept",
        "tq2: mean KL is 0.500000, above --max-kl 0.1",
        "87.50\u{a0}%",
        "Attention outputs by layer",
        "KL by position",
        "Histogram of KL",
        "median 3, 25.00\u{a0}% never",
        "L02.attn.attend",
        ".c-1 { --hue",
    ] {
        assert!(page.contains(part), "{part:?} is not in the page");
    }
    assert!(!page.contains("tq4: mean KL"));
}

#[test]
fn nothing_leads_elsewhere_and_nothing_runs() {
    let evil = "<script>x</script>\"' onload='x'&\u{202e}\u{1b}[2J";
    let mut bad = compared(evil, 1, f64::INFINITY);
    bad.ratio = f64::NAN;
    let page =
        page(vec![bad, compared("b", 0, 0.0)], Thresholds { max_kl: Some(0.0), ..Thresholds::default() });
    assert_well_formed(&page.replace("not finite", ""));
    for part in ["<script", "http:", "https:", "url(", "@import", "<link", "<img", "<iframe", "href", "src="]
    {
        assert!(!page.to_lowercase().contains(part), "{part:?} is in the page");
    }
    assert!(page.contains("default-src 'none'") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
}

#[test]
fn any_candidates_make_a_page() {
    assert_well_formed(&page(Vec::new(), Thresholds::default()));
    let empty =
        Compared { positions: Vec::new(), histogram: Vec::new(), greedy: None, ..compared("x", 0, 0.0) };
    assert_well_formed(&page(vec![empty], Thresholds::default()));
    let many = (0..20).map(|i| compared(&i.to_string(), 90, 0.01)).collect();
    assert_well_formed(&page(many, Thresholds::default()));
}
