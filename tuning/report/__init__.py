"""Pages for people: self-contained HTML with plots drawn as SVG. Pure."""
