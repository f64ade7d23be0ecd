//! Stage 5: operations as data: recorded, checked, grouped into waves, placed in an arena
