/* Lets the search of the site work when its files are opened without a server.
 *
 * The theme searches in a web worker, and browsers start no worker for a page of file://. There, and
 * only there, this runs the worker's script in a hidden frame instead. The theme's "offline" plugin
 * would load such a script from another site.
 */

(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve, reject) => {
        script.addEventListener("load", resolve);
        script.addEventListener("error", reject);
      });
      this.loaded.catch(() => this.dispatchEvent(new Event("error")));
      inside.document.head.append(script);
    }

    postMessage(data) {
      const send = () => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded.then(send, () => {});
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
