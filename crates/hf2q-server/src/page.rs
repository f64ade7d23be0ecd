//! The chat page, and what a browser may do with it.

use std::sync::OnceLock;

use ring::digest::{SHA256, digest};

use crate::ids::base64;

/// One file with its scripts and styles.
pub(crate) const PAGE: &str = concat!(
    "<!doctype html>\n<html lang=\"en\">\n",
    include_str!("../page/head.html"),
    "<style>\n",
    include_str!("../page/style.css"),
    "</style>\n",
    include_str!("../page/body.html"),
    "<script>\n",
    include_str!("../page/elements.js"),
    include_str!("../page/markdown.js"),
    include_str!("../page/history.js"),
    include_str!("../page/server.js"),
    include_str!("../page/answer.js"),
    include_str!("../page/messages.js"),
    include_str!("../page/app.js"),
    "</script>\n</html>\n",
);

/// The page runs the scripts and styles that lie in it, which are named by their hashes, and talks to this server alone. It
/// makes no markup out of text, which the browser enforces (trusted types).
pub(crate) fn policy() -> &'static str {
    static POLICY: OnceLock<String> = OnceLock::new();
    POLICY.get_or_init(|| {
        let [scripts, styles] = ["script", "style"].map(|tag| hashes(PAGE, tag));
        format!(
            "default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src 'self' data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
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
        assert!(policy().starts_with("default-src 'none'; script-src 'sha256-"));
    }

    #[test]
    fn the_page_has_one_script_and_one_style_and_asks_nobody_else() {
        for tag in ["script", "style"] {
            assert_eq!(hashes(PAGE, tag).split(' ').count(), 1, "{tag}");
            assert_eq!(PAGE.matches(&format!("</{tag}>")).count(), 1, "{tag}");
        }
        for foreign in ["src=\"", "@import", "url(", "innerHTML"] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
    }
}
