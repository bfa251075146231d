"""The page at `/`: plain files inside the package, served as they are. All logic runs in the browser.

It uses the same calls as everybody else and may do no more than its key: nothing is made for it alone.
"""
