//! Stage 9: text to tokens and back, chat templates
