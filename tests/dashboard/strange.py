"""Texts that would do harm if a page took them for anything but texts."""

IMAGE = "<img src=x onerror=\"document.title='hacked'\">"
SCRIPT = "<script>document.title='hacked'</script>"
EVERY = (IMAGE, SCRIPT, "javascript:alert(1)", '"><svg onload=alert(1)>', "{{7*7}} ${7*7}")
