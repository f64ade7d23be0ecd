//! The chat page, and what a browser may do with it.

use std::sync::OnceLock;

use ring::digest::{SHA256, digest};

use crate::ids::base64;

/// One file with its scripts and styles.
pub(crate) const PAGE: &str = include_str!("../page/index.html");

/// The page runs the scripts and styles that lie in it, which are named by their hashes, and talks to this server alone.
pub(crate) fn policy() -> &'static str {
    static POLICY: OnceLock<String> = OnceLock::new();
    POLICY.get_or_init(|| {
        let [scripts, styles] = ["script", "style"].map(|tag| hashes(PAGE, tag));
        format!(
            "default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src 'self' data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    })
}

/// The hashes of all elements with this tag, as a policy names them.
fn hashes(page: &str, tag: &str) -> String {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find(&format!("<{tag}")) {
        let Some(start) = rest[at..].find('>').map(|n| at + n + 1) else { break };
        let Some(len) = rest[start..].find(&format!("</{tag}>")) else { break };
        found.push(format!(
            "'sha256-{}'",
            base64(digest(&SHA256, &rest.as_bytes()[start..start + len]).as_ref())
        ));
        rest = &rest[start + len..];
    }
    if found.is_empty() { "'none'".to_owned() } else { found.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_named_by_their_hashes() {
        // The hash of an empty text.
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        assert_eq!(
            hashes("<script></script><p><script async></script>", "script"),
            format!("{empty} {empty}")
        );
        assert_eq!(hashes("<p>", "style"), "'none'");
        assert!(policy().starts_with("default-src 'none'; script-src "));
    }
}
