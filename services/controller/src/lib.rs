//! Sources of objects, the interest of each node, and the fold of what the edges report.
