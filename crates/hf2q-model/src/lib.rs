//! Stage 6: records the layers of each architecture as a plan
